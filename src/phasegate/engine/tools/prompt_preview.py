"""Build the exact prompt that an agent would receive, or read one that was sent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.artifact_path import require_slug
from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.core.prompt.prompt_sizes import PartSize, measure_parts
from phasegate.core.workflow.phases import required_artifacts
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.engine.project.settings import (
    choose_prompt_files,
    find_template_prefix,
    load_settings,
)
from phasegate.errors import ConfigError
from phasegate.prompts.agent_files import load_shipped_files

# Re-exported for interfaces
from phasegate.prompts.assemble import AssembledPrompt as AssembledPrompt
from phasegate.prompts.assemble import (
    PromptRequest,
    PromptSource,
    assemble_prompt,
    read_pieces,
)
from phasegate.prompts.templates import find_project_root
from phasegate.storage.location import locate_repository
from phasegate.workspace.repository.repository import list_files

# Documents that the templates ask for without a phase of a workflow
DEFAULT_DOCUMENTS = {"plan": ("proposal.md", "specs/", "tasks.md"), "archive": ("CHANGELOG.md",)}


class PromptContext(NamedTuple):
    """A prompt's context apart from its instructions: files, documents and thoughts."""

    files: Sequence[str] = ()
    artifacts: Sequence[str] = ()
    thoughts: Sequence[str] = ()


def preview_prompt(
    agent: str,
    phase: str,
    text: str,
    context: PromptContext,
    budget: int | None,
    workflow_phase: str | None,
) -> AssembledPrompt:
    """Assemble the prompt for an agent in a phase, within its budget."""
    root = find_project_root()
    effective = load_settings(root)
    prefix, configured = find_template_prefix(effective.config, agent)
    project_file, templates = choose_prompt_files(effective.config, effective.trust, root)
    request = PromptRequest(
        agent=prefix,
        phase=phase,
        instructions=text,
        root=root,
        paths=list_files(root),
        output_documents=_required_documents(phase, workflow_phase),
        budget_tokens=budget,
        configured_agents=configured,
        project_file=project_file,
        templates_folder=templates,
    )
    sources = [
        PromptSource(kind, as_utf8(name), Path(name))
        for kind, names in (
            (PieceKind.FILE, context.files),
            (PieceKind.ARTIFACT, context.artifacts),
        )
        for name in names
    ]
    thoughts = [
        ContextPiece(PieceKind.THOUGHT, None, as_utf8(thought)) for thought in context.thoughts
    ]
    return assemble_prompt(request, [*read_pieces(root, sources, budget), *thoughts])


def read_recorded_prompt(folder: Path, job: str) -> bytes:
    """Return the prompt that a job was given, byte for byte."""
    path = (
        locate_repository(folder, os.environ).jobs_folder
        / require_slug(job, "job id")
        / "prompt.xml"
    )

    try:
        return path.read_bytes()
    except OSError:
        raise ConfigError(
            f"there is no recorded job {job}", "phasegate audit show lists them"
        ) from None


def measure_prompt(prompt: UnifiedPrompt) -> list[PartSize]:
    """Return the size of each part of a prompt."""
    return measure_parts(prompt, {file.name for file in load_shipped_files()})


def as_utf8(argument: str) -> str:
    """Decode an argument's raw bytes as UTF-8: prompts must not depend on the locale."""
    return os.fsencode(argument).decode("utf-8", "surrogateescape")


def _required_documents(phase: str, workflow_phase: str | None) -> tuple[str, ...]:
    if workflow_phase is None:
        return DEFAULT_DOCUMENTS.get(phase, ())
    return required_artifacts(workflow_phase, WORKFLOWS["feature"])
