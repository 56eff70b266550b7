"""A step is a function from values to events: what it may know, what comes of it.

Whoever drives it records that.

The steps of phases and of packages are of this form. They see no store and no lock, so they can be
carried out elsewhere, or in a test without either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from phasegate.core.audit.trail import TrailEvent
from phasegate.core.workflow.spending import Spending
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.journal.artifacts import StoredArtifact
from phasegate.engine.journal.entries import AgentClaim, ScopeException
from phasegate.engine.project.agents import NamedAgent
from phasegate.storage.rows import NewEvent, PackageRow

S_contra = TypeVar("S_contra", contravariant=True)
E = TypeVar("E")


# By us, before the job that is told of them: lines for the beginning of its trail
CHECKS_RAN = "checks.ran"


class UnitWorker(NamedTuple):
    """Who worked at a unit last: what is found out about the work belongs into that job's trail."""

    job: str
    # As configured
    agent: str
    agent_index: int = 0


class TrailNote(NamedTuple):
    """A line for the trail of a job that has ended."""

    job: str
    ts: str
    entry: TrailEvent


class StepContext(NamedTuple):
    """What a step may know of the record."""

    # When the feature was started, or its plan loaded
    started_at: str = ""
    # The text of each package's document, as it was loaded last
    package_documents: Mapping[str, str] = {}
    packages: tuple[PackageRow, ...] = ()
    # For a package
    scope_exceptions: tuple[ScopeException, ...] = ()
    # Of a package's agents
    claims: tuple[AgentClaim, ...] = ()
    # On a feature
    spent: Spending = Spending()
    # The head of the audit chain, for a feature
    chain_head: str = ""
    # That agents stored, of the package or of the whole feature
    artifacts: tuple[StoredArtifact, ...] = ()
    # The implementers of a package; of a feature, whoever had the last job
    workers: tuple[UnitWorker, ...] = ()
    # What we ran for the next job of a feature, with its time
    check_entries: tuple[tuple[str, TrailEvent], ...] = ()
    # What state.json shows of the feature
    state_json: str = ""
    # Of people, to what its agents asked
    user_answers: tuple[str, ...] = ()


class StepResult(NamedTuple, Generic[E]):
    """What came of a step, to be recorded as one."""

    events: tuple[E, ...]
    rows: tuple[NewEvent, ...] = ()
    notices: tuple[str, ...] = ()
    # Of its time, in seconds: each command that was run
    command_durations_s: Mapping[str, float] = {}
    trail_notes: tuple[TrailNote, ...] = ()


class AgentRequest(NamedTuple):
    """A run of an agent that is due."""

    # Plan, challenge, implement, compare, review or archive
    role: str
    # The key, such as 06-implementation
    phase: str
    round: int
    agent_index: int = 0
    retries: int = 0
    asked_again: bool = False
    # Why the last try did not count
    retry_reason: str = ""
    # Who does it, whatever the roles say
    agent_override: str = ""
    # Of a contest: `agent_index` is its number
    is_attempt: bool = False
    # Whose work is judged, if it is not that of the role
    authors: tuple[str, ...] = ()
    # The attempts that are compared: A, B and so on
    candidates: tuple[int, ...] = ()


class UnitSteps(Protocol[S_contra, E]):
    """The steps of a unit of work. Each is idempotent up to its record."""

    def run(self, state: S_contra, context: StepContext) -> StepResult[E]:
        """Do what is due, where no agent does it."""

    def list_agent_requests(self, state: S_contra) -> Sequence[AgentRequest]:
        """The runs of agents that could start now.

        None where no agent is needed, or all are at work.
        """

    def assign_job(
        self,
        state: S_contra,
        request: AgentRequest,
        agent: NamedAgent,
        job: str,
        context: StepContext,
    ) -> JobAssignment:
        """Prepare the place of a job, and say what its agent is told."""

    def make_started_event(self, request: AgentRequest, assigned: JobAssignment) -> E:
        """The event of a job's start."""

    def describe_agent(self, request: AgentRequest, assigned: JobAssignment) -> str:
        """Who is at work, as people know it."""

    def apply_job_end(
        self, request: AgentRequest, assigned: JobAssignment, job_end: JobEnd
    ) -> StepResult[E]:
        """What follows from a job's end."""

    def list_open_jobs(self, state: S_contra) -> Sequence[str]:
        """The jobs that were started and have no end on record."""

    def save_lost_work(self, state: S_contra) -> None:
        """Save what open jobs left that nobody runs any more.

        Their places are as before their start.
        """

    def make_lost_event(self, job: str, reason: str, last_seen: str) -> E:
        """The event of the end of a job that nobody saw."""
