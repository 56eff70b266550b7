"""A step is a function from values to events: what it may know, what comes of it. Whoever drives it records that.

The steps of phases and of packages are of this form. They see no store and no lock, so they can be carried out
elsewhere, or in a test without either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from phasegate.core.audit.trail import TrailEvent
from phasegate.core.workflow.spending import Spending
from phasegate.engine.jobs.assignment import JobAssignment, JobEnd
from phasegate.engine.journal.artifacts import StoredArtifact
from phasegate.engine.journal.entries import AgentClaim, ScopeException
from phasegate.engine.project.agents import NamedAgent
from phasegate.storage.rows import NewEvent, PackageRow

S_contra = TypeVar("S_contra", contravariant=True)
E = TypeVar("E")


CHECKS_RAN = "checks.ran"  # by us, before the job that is told of them: lines for the beginning of its trail


class UnitWorker(NamedTuple):
    """Who worked at a unit last: what is found out about the work belongs into that job's trail."""

    job: str
    agent: str  # as configured
    agent_index: int = 0


class TrailNote(NamedTuple):
    """A line for the trail of a job that has ended."""

    job: str
    ts: str
    entry: TrailEvent


class StepContext(NamedTuple):
    """What a step may know of the record."""

    started_at: str = ""  # when the feature was started, or its plan loaded
    package_documents: Mapping[str, str] = {}  # the text of each package's document, as it was loaded last
    packages: tuple[PackageRow, ...] = ()
    scope_exceptions: tuple[ScopeException, ...] = ()  # for a package
    claims: tuple[AgentClaim, ...] = ()  # of a package's agents
    spent: Spending = Spending()  # on a feature
    chain_head: str = ""  # the head of the audit chain, for a feature
    artifacts: tuple[StoredArtifact, ...] = ()  # that agents stored, of the package or of the whole feature
    workers: tuple[UnitWorker, ...] = ()  # the implementers of a package; of a feature, whoever had the last job
    check_entries: tuple[tuple[str, TrailEvent], ...] = ()  # what we ran for the next job of a feature, with its time
    state_json: str = ""  # what state.json shows of the feature
    user_answers: tuple[str, ...] = ()  # of people, to what its agents asked


class StepResult(NamedTuple, Generic[E]):
    """What came of a step, to be recorded as one."""

    events: tuple[E, ...]
    rows: tuple[NewEvent, ...] = ()
    notices: tuple[str, ...] = ()
    command_durations_s: Mapping[str, float] = {}  # of its time, in seconds: each command that was run
    trail_notes: tuple[TrailNote, ...] = ()


class AgentRequest(NamedTuple):
    """A run of an agent that is due."""

    role: str  # plan, challenge, implement, compare, review or archive
    phase: str  # the key, such as 06-implementation
    round: int
    agent_index: int = 0
    retries: int = 0
    asked_again: bool = False
    retry_reason: str = ""  # why the last try did not count
    agent_override: str = ""  # who does it, whatever the roles say
    is_attempt: bool = False  # of a contest: `agent_index` is its number
    authors: tuple[str, ...] = ()  # whose work is judged, if it is not that of the role
    candidates: tuple[int, ...] = ()  # the attempts that are compared: A, B and so on


class UnitSteps(Protocol[S_contra, E]):
    """The steps of a unit of work. Each is idempotent up to its record."""

    def run(self, state: S_contra, context: StepContext) -> StepResult[E]:
        """Do what is due, where no agent does it."""

    def list_agent_requests(self, state: S_contra) -> Sequence[AgentRequest]:
        """The runs of agents that could start now; none where no agent is needed, or all are at work."""

    def assign_job(
        self, state: S_contra, request: AgentRequest, agent: NamedAgent, job: str, context: StepContext
    ) -> JobAssignment:
        """Prepare the place of a job, and say what its agent is told."""

    def make_started_event(self, request: AgentRequest, assigned: JobAssignment) -> E:
        """The event of a job's start."""

    def describe_agent(self, request: AgentRequest, assigned: JobAssignment) -> str:
        """Who is at work, as people know it."""

    def apply_job_end(self, request: AgentRequest, assigned: JobAssignment, job_end: JobEnd) -> StepResult[E]:
        """What follows from a job's end."""

    def list_open_jobs(self, state: S_contra) -> Sequence[str]:
        """The jobs that were started and have no end on record."""

    def save_lost_work(self, state: S_contra) -> None:
        """Save what open jobs left that nobody runs any more; their places are as before their start."""

    def make_lost_event(self, job: str, reason: str, last_seen: str) -> E:
        """The event of the end of a job that nobody saw."""
