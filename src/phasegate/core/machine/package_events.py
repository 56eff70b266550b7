"""Events of a work package, as stored in its journal.

`core/machine/package_machine` folds them into a `PackageRun`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256

import msgspec

from phasegate.core.answer.vocabulary import TaskStatus, Verdict
from phasegate.core.text.wording import shorten
from phasegate.core.workflow.origin import OrderOrigin

_REVIEW_MARKER = re.compile(r"<review>\s*\w*\s*</review>")
_LIST_MARK = re.compile(r"(?:[-*]|\d+[.)])\s+")
_VOLATILE_VALUES = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:m?s|sec(?:onds?)?|min(?:utes?)?)\b"
    r"|\b0x[0-9a-f]+\b|\b\d\d:\d\d(?::\d\d)?\b",
    re.I,
)
MAX_QUOTE_CHARS = 200
# Retries of one job after a rate limit
MAX_PAUSES = 20
# Retries of one job after its process was lost. Without a limit, a job that kills the process that
# drives it would be started for ever
MAX_LOSSES = 3


class PackageLimits(msgspec.Struct, frozen=True):
    """Limits on rounds and retries, and the number of agents."""

    rounds: int = 5
    retries: int = 3
    agents: int = 1
    pauses: int = MAX_PAUSES
    losses: int = MAX_LOSSES


class JobEndKind(StrEnum):
    """How the job of an agent ended, as classified by `job_end`."""

    # Exit code 0 and a valid answer
    DONE = "done"
    # Our process ended before the job did: retried a few times, not counted as a retry
    LOST = "lost"
    # A temporary failure (network, lock, rate limit): retried
    TRANSIENT = "transient"
    # The provider says when the limit ends: retried then, not counted as a retry
    RATE_LIMITED = "rate limited"
    # The work may be usable, but the answer is missing or malformed: asked once more
    UNREADABLE = "unreadable"
    # The agent reports that it cannot continue
    BLOCKED = "blocked"
    # A timeout, a crash or a failure response
    FAILED = "failed"


class PackageEvent(msgspec.Struct, frozen=True, tag=True):
    """Base class of all package events; the journal contains no other kind."""


class PackagePrepared(PackageEvent, frozen=True, tag="prepared"):
    """The branch and the checkouts of the package were created from this commit."""

    base: str
    # Agents of a contest, one per attempt; empty: no contest
    entrants: tuple[str, ...] = ()
    # Whether a review of only the changes since the last review is enough for a merge
    delta_is_final: bool = False
    # Whether the package is merged through a pull request
    at_forge: bool = False


class PackageJobStarted(PackageEvent, frozen=True, tag="job-started"):
    job: str
    # implement or review
    role: str
    round: int
    agent_index: int = 0
    # Configured name of the agent
    agent: str = ""
    # Delta reviews only: tokens saved compared with a full review prompt
    saved_tokens: int = 0


class PackageJobEnded(PackageEvent, frozen=True, tag="job-ended"):
    job: str
    end: JobEndKind
    reason: str = ""
    remediation: str = ""
    cleanup: bool = False
    # Lost jobs only: time of the last output. Empty in journals written before losses were counted
    last_seen: str = ""
    # Task statuses reported by the implementer
    tasks: tuple[tuple[str, TaskStatus], ...] = ()
    # Text of an implementer's answer, or of one that could not be used
    answer: str = ""


class Harvested(PackageEvent, frozen=True, tag="harvested"):
    """The changes collected from the checkouts.

    A commit, or violations, or neither if nothing differs from the base.
    """

    commit: str = ""
    violations: tuple[str, ...] = ()
    # Commands that show the violations and allow them
    remedy: str = ""
    # Places where a secret of the agent was found
    leaks: tuple[str, ...] = ()
    # Document about changes that a diff does not show well, for the reviewer
    remarks: str = ""
    # If nothing differs from the base: the deliverables that already exist
    there: tuple[str, ...] = ()
    # The round changed nothing: the commit is that of the previous round, or empty
    unchanged: bool = False


class Validated(PackageEvent, frozen=True, tag="validated"):
    """Results of the checks on a clean checkout; no failures means that the manifest passed."""

    commit: str
    failures: tuple[str, ...] = ()
    # Failed checks whose program is not installed
    without_program: tuple[str, ...] = ()
    # Document with the results, for the reviewer
    evidence: str = ""
    # Document with the agents' false claims
    claims: str = ""
    # `failure_key` of the failures
    alike: str = ""
    # Violated rules about dependencies and frozen files, which only the user can lift
    governance: tuple[str, ...] = ()
    # Findings that the reviewer has to answer, each beginning with its id
    questions: tuple[str, ...] = ()
    # Document with everything that was found out about the tests
    strength: str = ""
    # Result of the test command in words
    tests: str = ""


class AttemptChecked(PackageEvent, frozen=True, tag="attempt-judged"):
    """Changes and check results of a contest attempt; `validated` is None if it has no changes."""

    attempt: int
    harvested: Harvested
    validated: Validated | None = None


class AttemptsCompared(PackageEvent, frozen=True, tag="attempts-compared"):
    """The reviewer's choice among the attempts that passed."""

    best: int
    findings: str = ""


class AttemptSelected(PackageEvent, frozen=True, tag="attempt-taken"):
    """An attempt's checkout and branch became the package's.

    `kept` maps the other attempts to the refs under which they are kept.
    """

    attempt: int
    kept: dict[int, str] = {}


class Reviewed(PackageEvent, frozen=True, tag="reviewed"):
    verdict: Verdict
    findings: str = ""
    # True for a review of only the changes since the last review
    delta: bool = False
    # `failure_key` of the findings
    alike: str = ""


class AcceptedRemark(msgspec.Struct, frozen=True):
    """A remark on a pull request that a round addresses."""

    id: str
    thread: str
    finding: str


class PackagePublished(PackageEvent, frozen=True, tag="published"):
    """The package was pushed, and a pull request onto the feature branch exists."""

    number: int
    url: str
    commit: str


class PackagePullWaits(PackageEvent, frozen=True, tag="pull-waits"):
    """The pull request waits for another reason than before."""

    reason: str
    # It is in the merge queue
    queued: bool = False
    # Waiting alone will not help
    needs_user: bool = False


class PackageRemarksReceived(PackageEvent, frozen=True, tag="remarked"):
    """Reviewers asked for changes on the pull request."""

    remarks: tuple[AcceptedRemark, ...]


class PackageHeld(PackageEvent, frozen=True, tag="held"):
    """The pull request is in an unexpected state; the package waits until the user has fixed it."""

    reason: str
    remediation: str


class PackageMerged(PackageEvent, frozen=True, tag="merged"):
    commit: str


class PackageNotMerged(PackageEvent, frozen=True, tag="not-merged"):
    """The merge into the feature branch failed: a conflict, or failing checks after the merge."""

    reason: str


class CheckoutsRemoved(PackageEvent, frozen=True, tag="cleaned"):
    """The checkouts were removed; uncommitted changes in them were saved."""


class PackageResolved(PackageEvent, frozen=True, tag="resolved"):
    """The user resolved the blocker."""

    how: str
    by: OrderOrigin = OrderOrigin()
    # The user has allowed a path since: the finished work is collected again, without an agent
    takes_work: bool = False


AnyPackageEvent = (
    PackagePrepared
    | PackageJobStarted
    | PackageJobEnded
    | Harvested
    | Validated
    | AttemptChecked
    | AttemptsCompared
    | AttemptSelected
    | Reviewed
    | PackagePublished
    | PackagePullWaits
    | PackageRemarksReceived
    | PackageHeld
    | PackageMerged
    | PackageNotMerged
    | CheckoutsRemoved
    | PackageResolved
)


def failure_key(findings: str) -> str:
    """Return a key that is equal for equal failures, ignoring durations, times and addresses."""
    lines = (_VOLATILE_VALUES.sub("", line).strip() for line in findings.splitlines())
    return sha256(
        "\n".join(line for line in lines if line).encode(errors="surrogateescape")
    ).hexdigest()[:16]


def first_finding(findings: str) -> str:
    """Return the first finding without list marks, headings and verdict markers; empty if none."""
    for line in _REVIEW_MARKER.sub("", findings).splitlines():
        text = _LIST_MARK.sub("", line.strip())
        if text and not text.startswith("#"):
            return shorten(text, MAX_QUOTE_CHARS)
    return ""


def first_line(findings: str) -> str:
    """Return the first non-empty line of the findings, shortened."""
    line = next((line.strip() for line in findings.splitlines() if line.strip()), "none was given")
    return shorten(line, MAX_QUOTE_CHARS)
