"""State of a work package and its steps."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from phasegate.core.answer.vocabulary import TaskStatus
from phasegate.core.machine import package_events as events
from phasegate.core.plan.work_package import PackageState


class PackageStep(StrEnum):
    """A step that the engine can run."""

    PREPARE = "prepare"
    IMPLEMENT = "implement"
    HARVEST = "harvest"
    VALIDATE = "validate"
    # Harvest and validate one attempt of a contest
    CHECK_ATTEMPT = "judge"
    # Let the reviewer compare the attempts that passed
    COMPARE = "compare"
    # Make the best attempt the work of the package
    SELECT_ATTEMPT = "take"
    # Open or update the pull request
    PUBLISH = "publish"
    REVIEW = "review"
    # Wait for approval and merge of the pull request
    AWAIT = "await"
    MERGE = "merge"
    CLEAN = "clean"
    STOP = "stop"


PACKAGE_FORGE_STEPS = (PackageStep.PUBLISH, PackageStep.AWAIT)
AGENT_STEPS = (PackageStep.IMPLEMENT, PackageStep.COMPARE, PackageStep.REVIEW)


class PendingWork(msgspec.Struct, frozen=True):
    """Work that an agent still has to deliver, with its retry counters.

    `reason` is why the last try did not count.
    """

    agent_index: int = 0
    retries: int = 0
    asked_again: bool = False
    reason: str = ""
    # The last answer, if it could not be used
    answer: str = ""
    # Waits for rate limits
    pauses: int = 0
    losses: int = 0


class Attempt(msgspec.Struct, frozen=True):
    """A contest attempt whose agent has ended."""

    number: int
    # Why the agent delivered nothing
    failure: str = ""
    # Statuses reported by its agent
    tasks: tuple[tuple[str, TaskStatus], ...] = ()
    harvested: events.Harvested | None = None
    validated: events.Validated | None = None

    @property
    def is_checked(self) -> bool:
        return bool(self.failure) or self.harvested is not None

    @property
    def passed(self) -> bool:
        """Whether it has changes, all within scope, and passed every check of the manifest."""
        return self.validated is not None and not self.validated.failures

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key, best first. If no attempt passed, the best one continues with its findings."""
        if self.validated is not None:
            return (0, len(self.validated.failures), self.number)
        if self.harvested is None:
            return (3, 0, self.number)
        if self.harvested.violations or self.harvested.leaks:
            return (2, 0, self.number)
        return (1, 0, self.number)


class Contest(msgspec.Struct, frozen=True):
    """A contest that is not decided; empty if there is none."""

    # Agents, one per attempt
    entrants: tuple[str, ...] = ()
    # Attempts whose agent has ended, by number
    attempts: tuple[Attempt, ...] = ()
    # Number of the chosen attempt; -1: none yet
    selected: int = -1

    @property
    def candidates(self) -> dict[str, Attempt]:
        """The attempts that passed, by a letter that does not reveal the agent.

        They are sorted by commit hash, which is unrelated to the order of agents.
        """
        passed = sorted(
            (attempt for attempt in self.attempts if attempt.passed),
            key=lambda attempt: attempt.harvested.commit if attempt.harvested else "",
        )
        return {chr(ord("A") + index): attempt for index, attempt in enumerate(passed)}


class PreviousRound(msgspec.Struct, frozen=True):
    """The previous round; empty in the first round and after an order of the user."""

    commit: str = ""
    failure_key: str = ""
    # Failed checks whose program was missing
    without_program: tuple[str, ...] = ()


class ReviewProgress(msgspec.Struct, frozen=True):
    """Reviews of the package so far."""

    # Documents for the reviewer of this round: evidence first, then remarks and claims
    documents: tuple[str, ...] = ()
    # Commit of the last review
    reviewed_commit: str = ""
    # Commit of the last review that passed
    passed_commit: str = ""
    findings: tuple[str, ...] = ()
    # Findings about the tests that the reviewer has to answer, each beginning with its id
    questions: tuple[str, ...] = ()
    # A delta review passed; a full review has to follow
    needs_full: bool = False
    # Configured: a delta review is enough for a merge
    delta_is_final: bool = False

    @property
    def can_review_delta(self) -> bool:
        """Whether the next reviewer needs only the changes since the last review.

        Never if a full review would have to follow.
        """
        return bool(self.reviewed_commit) and self.delta_is_final and not self.needs_full


class PullRequestProgress(msgspec.Struct, frozen=True):
    """The pull request of the package, if it is merged through one."""

    is_used: bool = False
    published: events.PackagePublished | None = None
    # Remarks of reviewers that rounds addressed; the last `unanswered` ones have no reply yet
    remarks: tuple[events.AcceptedRemark, ...] = ()
    unanswered: int = 0
    # Why it waits, since it was published
    wait: events.PackagePullWaits | None = None


class Blocker(msgspec.Struct, frozen=True):
    """Why a package is blocked and what to do; empty unless it is."""

    reason: str = ""
    remediation: str = ""
    # The user has to fix the pull request; the work itself is fine
    is_held: bool = False
    # Finished work is in the checkouts, but a file of it is outside of the scope
    is_scope: bool = False


class PackageRun(msgspec.Struct, frozen=True):
    """State of a package, folded from its events."""

    limits: events.PackageLimits = events.PackageLimits()
    state: PackageState = PackageState.PLANNED
    step: PackageStep = PackageStep.PREPARE
    blocker: Blocker = Blocker()

    round: int = 1
    # Rounds before the user's last order: the limit counts from there, the number continues
    rounds_before: int = 0
    # Why it was blocked before the user's last order
    resolved_blocker: str = ""
    # Rounds that were started because of a failed merge
    merge_rounds: int = 0
    previous: PreviousRound = PreviousRound()

    # Work of the implementers of this round, or of its reviewer
    pending: tuple[PendingWork, ...] = ()
    open_jobs: tuple[events.PackageJobStarted, ...] = ()
    commit: str = ""
    # What the next round has to address
    findings: str = ""
    # What the implementers of this round answered
    replies: str = ""
    # Last reported status of each task
    tasks: tuple[tuple[str, TaskStatus], ...] = ()
    # Tasks that any answer of this round reported as FAILED
    reported_failed_tasks: tuple[str, ...] = ()

    contest: Contest = Contest()
    # Agent whose attempt was selected: it does the later rounds
    winning_agent: str = ""
    review: ReviewProgress = ReviewProgress()
    pull_request: PullRequestProgress = PullRequestProgress()

    @property
    def last_round(self) -> int:
        """Last round before the user has to decide."""
        return self.rounds_before + self.limits.rounds


class PackageAction(msgspec.Struct, frozen=True):
    """An action to run now. `pending` is the work to do, if an agent does it."""

    step: PackageStep
    round: int
    pending: PendingWork = PendingWork()
