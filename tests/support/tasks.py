"""Tasks for agents, with everything that an agent may look at on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from phasegate.agents.envelope import (
    AgentShare,
    EnvelopeConfig,
    EnvelopePackage,
    RunPaths,
    make_envelope,
)
from phasegate.agents.port import AgentConfig, AgentTask
from phasegate.core.paths.scope import Scope

JOB_ID = "3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d"


def make_task(
    repository: Path,
    agent: AgentConfig,
    *,
    kind: str = "command",
    share: AgentShare | None = None,
    package: EnvelopePackage | None = EnvelopePackage("WP01", 1),  # noqa: B008 - frozen
    phase: str = "implement",
    number: int = 1,
    scope: Iterable[str] = (),
) -> AgentTask:
    """A task whose checkout is the repository itself."""
    places = RunPaths(
        repository=repository,
        worktrees=repository / ".worktrees",
        checkout=repository,
        prompt=repository / "WP01.md",
        context=(repository / "spec.md", repository / "plan.md"),
    )
    config = EnvelopeConfig(kind=kind, timeout_secs=1800, pr_target_branch="feat/001-user-login")
    prompt_xml = repository / "prompt.xml"
    for path in (places.prompt, prompt_xml, *places.context):
        path.write_text("<prompt>é</prompt>\n")
    return AgentTask(
        envelope=make_envelope(JOB_ID, "001-user-login", places, config, package, share),
        agent=agent,
        repository=repository,
        checkout=repository,
        prompt_xml=prompt_xml,
        phase=phase,
        workflow_phase="06-implementation",
        round=number,
        scope=Scope(scope),
    )
