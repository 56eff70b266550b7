"""Load the shipped agent files and the texts of their prompt sections."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.agent_file import (
    AgentFile,
    PromptSection,
    extract_front_matter,
    find_section_problems,
    insert_section,
    looks_like_orchestrator,
    read_agent_file,
)
from phasegate.core.prompt.agent_role import (
    ANY_PHASE_ROLE,
    AgentKind,
    AgentRole,
    build_section,
    parse_declared_role,
)

SHIPPED_FOLDER = Path(__file__).parent / "agent_files"
_SECTIONS_FOLDER = Path(__file__).parent / "agent_sections"


class ShippedAgentFile(NamedTuple):
    """An agent file of the package, named as in the interface specification."""

    name: str
    text: str
    role: AgentRole


class AgentFileCheck(NamedTuple):
    """The corrected text of an agent file, and the problems that were found."""

    corrected_text: str
    findings: list[str]


@cache
def load_shipped_files() -> tuple[ShippedAgentFile, ...]:
    """Load all shipped agent files, sorted by name."""
    return tuple(_load_shipped_file(path) for path in _list_shipped_paths())


def _list_shipped_paths() -> list[Path]:
    return sorted(SHIPPED_FOLDER.glob("*.md"))


def find_phase_file(phase: str) -> ShippedAgentFile | None:
    """Find the agent file of a phase: the job description for every agent in it."""
    named = (
        path
        for path in _list_shipped_paths()
        if phase in path.read_text("utf-8").partition("\n---")[0]
    )
    files = (file for file in map(_load_shipped_file, named) if phase in file.role.phases)
    return next((file for file in files if file.role.kind is not AgentKind.SUB_AGENT), None)


def check_agent_file(text: str, name: str) -> AgentFileCheck:
    """Insert the expected section into an agent file, and report missing or stale parts."""
    section = build_expected_section(read_agent_file(text), name)
    file = read_agent_file(text, section)
    return AgentFileCheck(insert_section(file, section), find_section_problems(file, section))


def build_expected_section(file: AgentFile, name: str) -> PromptSection:
    """Build the prompt section of a file with this name."""
    return build_section(resolve_role(file, name), _load_section_texts())


def resolve_role(file: AgentFile, name: str) -> AgentRole:
    """Determine the role that an agent file describes.

    Front matter, file name and headings are tried in this order. By default the agent may work in
    any phase.
    """
    declared = parse_declared_role(extract_front_matter(file), name)
    if declared is not None:
        return declared

    for shipped in load_shipped_files():
        if shipped.name == name:
            return shipped.role

    if looks_like_orchestrator(file):
        return AgentRole(AgentKind.ORCHESTRATOR)

    return ANY_PHASE_ROLE


@cache
def _load_shipped_file(path: Path) -> ShippedAgentFile:
    text = path.read_text("utf-8")
    role = parse_declared_role(extract_front_matter(read_agent_file(text)), path.stem)
    if role is None:
        raise ValueError(f"the shipped agent file {path.name} declares no role")
    return ShippedAgentFile(path.stem, text, role)


@cache
def _load_section_texts() -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in _SECTIONS_FOLDER.glob("*.md")}
