"""The assignment of a job: its agent, its prompt and its checkout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.envelope import AgentShare
from phasegate.agents.port import EMPTY_SCOPE
from phasegate.config.settings import AgentSettings
from phasegate.core.audit.trail import TrailEvent
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.prompt.budget import ContextPiece
from phasegate.workspace.checkout.checkout import Assignment

MAX_NAMES_SHOWN = 20


class JobAssignment(NamedTuple):
    """A job that is ready to be admitted: which agent runs, where, and with which prompt."""

    job_id: str
    agent: str
    settings: AgentSettings
    feature: str
    # None for a job of the whole feature
    package: WorkPackage | None
    # plan, challenge, implement, review or archive
    role: str
    # The key of the workflow's phase, such as 06-implementation
    phase: str
    round: int
    max_rounds: int
    checkout: Path
    # WPnn.md in the checkout
    package_document: Path | None
    instructions: str
    pieces: Sequence[ContextPiece]
    paths: Sequence[str]
    # Paths whose folders the tree of the prompt shows open; all if there are none
    focus: Sequence[str] = ()
    # Documents that the envelope names
    context_documents: tuple[Path, ...] = ()
    share: AgentShare | None = None
    # Documents that a planner must create; the prompt contains their skeletons
    new_documents: tuple[str, ...] = ()
    # Paths that the agent may change
    scope: Scope = EMPTY_SCOPE
    # The commit that a critic or reviewer of a phase evaluates
    reviewed_commit: str = ""
    # The complete prompt, if it is not assembled from the parts above
    prepared_prompt: str = ""
    # How much shorter the prompt is than one that covers the whole work
    saved_tokens: int = 0
    # True if the previous answer could not be parsed
    asked_again: bool = False
    # Programs that the setup installed in the checkout; prepended to PATH
    setup_programs: tuple[Path, ...] = ()
    # None if the checkout is discarded, so that its changes are not logged
    own_checkout: Assignment | None = None
    # Trail entries of the preparation, with their times
    entries_before_start: tuple[tuple[str, TrailEvent], ...] = ()
    # Number of this retry, from 1; 0 for the first run
    attempt: int = 0
    # Why the previous run did not count
    retry_reason: str = ""
    # The previous answer, if it could not be used
    previous_answer: str = ""

    @property
    def package_id(self) -> str:
        if self.package:
            return self.package.work_package_id
        return ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that only this job does. Agents that share a package share its tasks."""
        if self.package and self.role == "implement" and self.share is None:
            return self.package.tasks
        return ()
