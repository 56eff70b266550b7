"""The interface of a step: a function from values to events.

The driver passes a context and records the result. The steps of features and of packages have this
form. They use no store and no lock, so they can run on another machine, or in a test without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.audit.trail import TrailEvent
from phasegate.core.plan.acceptance import SealedTests
from phasegate.core.workflow.spending import Spending
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.journal.artifacts import StoredArtifact
from phasegate.engine.journal.entries import AgentClaim, EvidenceAcceptance, ScopeException
from phasegate.engine.project.agents import NamedAgent
from phasegate.storage.rows import NewEvent, PackageRow

S_contra = TypeVar("S_contra", contravariant=True)
E = TypeVar("E")


# Event kind: checks that ran before a job, written to the start of its trail
CHECKS_RAN = "checks.ran"


class LastJob(NamedTuple):
    """A job that worked on a unit last; later findings are added to its trail."""

    job: str
    # The configured name
    agent: str
    agent_index: int = 0


class TrailNote(NamedTuple):
    """An entry for the trail of a job that has ended."""

    job: str
    ts: str
    entry: TrailEvent


class PackageReview(NamedTuple):
    """The verdict of a reviewing agent on a package."""

    package: str
    verdict: Verdict
    findings: str


class StepContext(NamedTuple):
    """The facts from the record that a step may use."""

    # When the feature was started or its plan was loaded
    started_at: str = ""
    # The branch that the feature is merged into; empty for packages without a workflow
    base: str = ""
    # The text of every package document, as last loaded
    package_documents: Mapping[str, str] = {}
    packages: tuple[PackageRow, ...] = ()
    # Exceptions of the package
    scope_exceptions: tuple[ScopeException, ...] = ()
    # Findings of the package that the user has accepted
    accepted_evidence: tuple[EvidenceAcceptance, ...] = ()
    # Claims about the package; for a feature, about all of its packages
    claims: tuple[AgentClaim, ...] = ()
    # Spending of the feature; not set for a package
    spent: Spending = Spending()
    # Head of the audit chain; not set for a package
    chain_head: str = ""
    # Artifacts that agents of the package or feature have stored
    artifacts: tuple[StoredArtifact, ...] = ()
    # The implementers of a package; for a feature, its last job
    workers: tuple[LastJob, ...] = ()
    # Checks that ran for the next job of a feature, with their times
    check_entries: tuple[tuple[str, TrailEvent], ...] = ()
    # The sealed acceptance tests, if there are any
    acceptance: SealedTests | None = None
    # Content of state.json for this feature
    state_json: str = ""
    # Reviews of the packages of a feature, oldest first: package, verdict and findings
    reviews: tuple[PackageReview, ...] = ()
    # Answers of the user to questions of the agents
    user_answers: tuple[str, ...] = ()


class StepResult(NamedTuple, Generic[E]):
    """The result of a step, recorded in one append."""

    events: tuple[E, ...]
    rows: tuple[NewEvent, ...] = ()
    notices: tuple[str, ...] = ()
    # Seconds per command that the step ran
    command_durations_s: Mapping[str, float] = {}
    trail_notes: tuple[TrailNote, ...] = ()


class AgentRequest(NamedTuple):
    """An agent job that is due."""

    # plan, challenge, implement, compare, review or archive
    role: str
    # Key of the phase, such as 06-implementation
    phase: str
    round: int
    agent_index: int = 0
    retries: int = 0
    asked_again: bool = False
    # Why the last run did not count
    retry_reason: str = ""
    # Number of this retry, from 1; 0 for the first run
    attempt: int = 0
    # The last answer, if it could not be used
    previous_answer: str = ""
    # The agent to use instead of the one configured for the role
    agent_override: str = ""
    # An attempt of a contest; `agent_index` is its number
    is_attempt: bool = False
    # Authors of the reviewed work, if they differ from the role's agent
    authors: tuple[str, ...] = ()
    # The attempts to compare: A, B and so on
    candidates: tuple[int, ...] = ()


class UnitSteps(Protocol[S_contra, E]):
    """The steps of a unit of work. Until its result is recorded, a step can be repeated safely."""

    def run(self, state: S_contra, context: StepContext) -> StepResult[E]:
        """Run the step that is due and that needs no agent."""

    def list_agent_requests(self, state: S_contra) -> Sequence[AgentRequest]:
        """Return the agent jobs that can start now.

        Empty if no agent is needed or all of them are running.
        """

    def assign_job(
        self,
        state: S_contra,
        request: AgentRequest,
        agent: NamedAgent,
        job: str,
        context: StepContext,
    ) -> JobAssignment:
        """Prepare the checkout of a job and build its assignment."""

    def make_started_event(self, request: AgentRequest, assigned: JobAssignment) -> E:
        """Make the event of a job's start."""

    def describe_agent(self, request: AgentRequest, assigned: JobAssignment) -> str:
        """Return the agent's name for the progress display."""

    def apply_job_end(
        self, request: AgentRequest, assigned: JobAssignment, job_end: JobEnd
    ) -> StepResult[E]:
        """Return the consequences of a job's end."""

    def list_open_jobs(self, state: S_contra) -> Sequence[str]:
        """Return the jobs that were started and have no recorded end."""

    def save_lost_work(self, state: S_contra) -> None:
        """Save the work of open jobs that no process runs, and reset their checkouts."""

    def make_lost_event(self, job: str, reason: str, last_seen: str) -> E:
        """Make the event that closes a lost job."""
