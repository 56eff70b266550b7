"""The shipped agent files and the texts of their prompt sections."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.agent_file import (
    AgentFile,
    Section,
    findings,
    front_matter,
    looks_like_orchestrator,
    read_agent_file,
    with_section,
)
from phasegate.core.prompt.agent_role import ANY_PHASE, AgentKind, Role, declared_role, section_for

SHIPPED_FOLDER = Path(__file__).parent / "agent_files"
_SECTIONS_FOLDER = Path(__file__).parent / "agent_sections"


class ShippedFile(NamedTuple):
    """A file of the package, named as in the interface specification."""

    name: str
    text: str
    role: Role


class Examined(NamedTuple):
    """A text as it should be, and what is wrong with it as it is."""

    text: str
    findings: list[str]


@cache
def shipped_files() -> tuple[ShippedFile, ...]:
    """All shipped agent files, by name."""
    return tuple(_shipped_file(path) for path in _shipped_paths())


def _shipped_paths() -> list[Path]:
    return sorted(SHIPPED_FOLDER.glob("*.md"))


def file_of_phase(phase: str) -> ShippedFile | None:
    """The agent file of a phase, which is the job description of all who work in it."""
    named = (path for path in _shipped_paths() if phase in path.read_text("utf-8").partition("\n---")[0])
    files = (file for file in map(_shipped_file, named) if phase in file.role.phases)
    return next((file for file in files if file.role.kind is not AgentKind.SUB_AGENT), None)


def examine(text: str, name: str) -> Examined:
    """Put the section that is due into the text of an agent file, and say what was missing or stale."""
    section = due_section(read_agent_file(text), name)
    file = read_agent_file(text, section)
    return Examined(with_section(file, section), findings(file, section))


def due_section(file: AgentFile, name: str) -> Section:
    """The prompt section of a file with this name."""
    return section_for(role_of(file, name), _section_texts())


def role_of(file: AgentFile, name: str) -> Role:
    """What the agent of a file is: by its front matter, else by its name, else by its headings, else any phase's."""
    declared = declared_role(front_matter(file), name)
    if declared is not None:
        return declared
    for shipped in shipped_files():
        if shipped.name == name:
            return shipped.role
    return Role(AgentKind.ORCHESTRATOR) if looks_like_orchestrator(file) else ANY_PHASE


@cache
def _shipped_file(path: Path) -> ShippedFile:
    text = path.read_text("utf-8")
    role = declared_role(front_matter(read_agent_file(text)), path.stem)
    if role is None:
        raise ValueError(f"the shipped agent file {path.name} does not say what it is")
    return ShippedFile(path.stem, text, role)


@cache
def _section_texts() -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in _SECTIONS_FOLDER.glob("*.md")}
