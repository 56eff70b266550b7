"""A step is a function from values to events: what it may know, what comes of it. Whoever drives it records that.

The steps of phases and of packages are of this form. They see no store and no lock, so they can be carried out
elsewhere, or in a test without either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from phasegate.core.audit.trail import Done
from phasegate.core.workflow.spending import Spent
from phasegate.engine.jobs.assignment import Assigned, Ended
from phasegate.engine.journal.artifacts import KeptArtifact
from phasegate.engine.journal.entries import Claimed, ScopeException
from phasegate.engine.project.agents import Member
from phasegate.storage.rows import Event, Package

S_contra = TypeVar("S_contra", contravariant=True)
E = TypeVar("E")


CHECKED = "checks.ran"  # by us, before the job that is told of them: lines for the beginning of its trail


class UnitWorker(NamedTuple):
    """Who worked at a unit last: what is found out about the work belongs into that job's trail."""

    job: str
    agent: str  # as configured
    agent_index: int = 0


class JobNote(NamedTuple):
    """A line for the trail of a job that has ended."""

    job: str
    ts: str
    done: Done


class Known(NamedTuple):
    """What a step may know of the record."""

    begun: str = ""  # when the feature was started, or its plan loaded
    documents: Mapping[str, str] = {}  # the text of each package's document, as it was loaded last
    packages: tuple[Package, ...] = ()
    allowed: tuple[ScopeException, ...] = ()  # for a package
    claims: tuple[Claimed, ...] = ()  # of a package's agents
    spent: Spent = Spent()  # on a feature
    chain: str = ""  # the head of the audit chain, for a feature
    artifacts: tuple[KeptArtifact, ...] = ()  # that agents stored, of the package or of the whole feature
    workers: tuple[UnitWorker, ...] = ()  # the implementers of a package; of a feature, whoever had the last job
    checked: tuple[tuple[str, Done], ...] = ()  # what we ran for the next job of a feature, with its time
    state: str = ""  # what state.json shows of the feature
    answers: tuple[str, ...] = ()  # of people, to what its agents asked


class Did(NamedTuple, Generic[E]):
    """What came of a step, to be recorded as one."""

    events: tuple[E, ...]
    rows: tuple[Event, ...] = ()
    notices: tuple[str, ...] = ()
    parts: Mapping[str, float] = {}  # of its time, in seconds: each command that was run
    trail: tuple[JobNote, ...] = ()


class Errand(NamedTuple):
    """A run of an agent that is due."""

    role: str  # plan, challenge, implement, compare, review or archive
    phase: str  # the key, such as 06-implementation
    round: int
    agent_index: int = 0
    retries: int = 0
    asked_again: bool = False
    reason: str = ""  # why the last try did not count
    agent: str = ""  # who does it, whatever the roles say
    is_attempt: bool = False  # of a contest: `agent_index` is its number
    made_by: tuple[str, ...] = ()  # whose work is judged, if it is not that of the role
    candidates: tuple[int, ...] = ()  # the attempts that are compared: A, B and so on


class Steps(Protocol[S_contra, E]):
    """The steps of a unit of work. Each is idempotent up to its record."""

    def carry_out(self, state: S_contra, known: Known) -> Did[E]:
        """Do what is due, where no agent does it."""

    def errands(self, state: S_contra) -> Sequence[Errand]:
        """The runs of agents that could start now; none where no agent is needed, or all are at work."""

    def assign(self, state: S_contra, errand: Errand, member: Member, job: str, known: Known) -> Assigned:
        """Prepare the place of a job, and say what its agent is told."""

    def started(self, errand: Errand, assigned: Assigned) -> E:
        """The event of a job's start."""

    def agent_name(self, errand: Errand, assigned: Assigned) -> str:
        """Who is at work, as people know it."""

    def take_in(self, errand: Errand, assigned: Assigned, ended: Ended) -> Did[E]:
        """What follows from a job's end."""

    def open_jobs(self, state: S_contra) -> Sequence[str]:
        """The jobs that were started and have no end on record."""

    def save(self, state: S_contra) -> None:
        """Save what open jobs left that nobody runs any more; their places are as before their start."""

    def lost(self, job: str, why: str, last_seen: str) -> E:
        """The event of the end of a job that nobody saw."""
