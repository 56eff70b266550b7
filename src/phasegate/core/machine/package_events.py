"""What can happen to a work package on its way.

The journal holds these; `core/machine/package_machine` reads them.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256

import msgspec

from phasegate.core.answer.vocabulary import TaskStatus, Verdict
from phasegate.core.workflow.origin import OrderOrigin

_VOLATILE_VALUES = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:m?s|sec(?:onds?)?|min(?:utes?)?)\b|\b0x[0-9a-f]+\b|\b\d\d:\d\d(?::\d\d)?\b",
    re.I,
)
MAX_QUOTE_CHARS = 200
# Of one run, for limits of the provider
MAX_PAUSES = 20
# Of one run: one that ends whoever drives it would go round for ever
MAX_LOSSES = 3


class PackageLimits(msgspec.Struct, frozen=True):
    """How often things are tried."""

    rounds: int = 5
    retries: int = 3
    agents: int = 1
    pauses: int = MAX_PAUSES
    losses: int = MAX_LOSSES


class JobEndKind(StrEnum):
    """How an agent's job ended, as we see it."""

    # Exit code 0 and a valid answer
    DONE = "done"
    # We died before its end: it is run again, a few times, and that counts as no try
    LOST = "lost"
    # Worth trying again by itself: network, a lock, a rate limit
    TRANSIENT = "transient"
    # The provider says when it goes on: tried again then, and that counts as no try
    RATE_LIMITED = "rate limited"
    # The work may be good, the answer is missing or malformed: ask once more
    UNREADABLE = "unreadable"
    # The agent says that it cannot go on
    BLOCKED = "blocked"
    # A timeout, a crash, a failure response
    FAILED = "failed"


class PackageEvent(msgspec.Struct, frozen=True, tag=True):
    """Something that happened. The journal holds nothing else."""


class PackagePrepared(PackageEvent, frozen=True, tag="prepared"):
    """The package's branch and checkouts are there, from this commit of the feature's branch."""

    base: str
    # The agents of a contest, one an attempt; none: there is no contest
    entrants: tuple[str, ...] = ()
    # Whether a review of what changed since the last one is enough for a merge
    delta_is_final: bool = False
    # Whether a pull request shows the work, and merges it
    at_forge: bool = False


class PackageJobStarted(PackageEvent, frozen=True, tag="job-started"):
    job: str
    # Implement or review
    role: str
    round: int
    agent_index: int = 0
    # As people know it
    agent: str = ""
    # Of a review of what changed since the last one: by how much its prompt is shorter
    saved_tokens: int = 0


class PackageJobEnded(PackageEvent, frozen=True, tag="job-ended"):
    job: str
    end: JobEndKind
    reason: str = ""
    remediation: str = ""
    cleanup: bool = False
    # Of a lost job: when it last gave a sign. Without it, a loss of before they were counted
    last_seen: str = ""
    # As the implementer reports them
    tasks: tuple[tuple[str, TaskStatus], ...] = ()


class Harvested(PackageEvent, frozen=True, tag="harvested"):
    """What was taken over from the checkouts.

    A commit, or none where nothing differs from the base, or violations.
    """

    commit: str = ""
    violations: tuple[str, ...] = ()
    # Where a key stood that was lent to the agent
    leaks: tuple[str, ...] = ()
    # The paper with what a diff would not make plain to the reviewer
    remarks: str = ""
    # Where nothing differs from the base: the deliverables that it has already
    there: tuple[str, ...] = ()
    # The round brought nothing: the commit is that of the round before, or there is none
    unchanged: bool = False


class Validated(PackageEvent, frozen=True, tag="validated"):
    """What our own checks found on a clean checkout; no failures means that the manifest passed."""

    commit: str
    failures: tuple[str, ...] = ()
    # Of the failed checks, those whose program is not there
    without_program: tuple[str, ...] = ()
    # The paper with what was found, for the reviewer
    evidence: str = ""
    # The paper with what the agents said and is not so
    claims: str = ""
    # The `failure_key` of the failures
    alike: str = ""


class AttemptChecked(PackageEvent, frozen=True, tag="attempt-judged"):
    """What an attempt left, and what our checks found there; nothing to check is None."""

    attempt: int
    harvested: Harvested
    validated: Validated | None = None


class AttemptsCompared(PackageEvent, frozen=True, tag="attempts-compared"):
    """The reviewer's choice among those that passed."""

    best: int
    findings: str = ""


class AttemptSelected(PackageEvent, frozen=True, tag="attempt-taken"):
    """An attempt's checkout and branch are the package's now.

    The others are kept under these refs, by attempt.
    """

    attempt: int
    kept: dict[int, str] = {}


class Reviewed(PackageEvent, frozen=True, tag="reviewed"):
    verdict: Verdict
    findings: str = ""
    # It was about what changed since the last review, with the whole by reference
    delta: bool = False
    # The `failure_key` of the findings
    alike: str = ""


class AcceptedRemark(msgspec.Struct, frozen=True):
    """A remark at a pull request that a round deals with."""

    id: str
    thread: str
    finding: str


class PackagePublished(PackageEvent, frozen=True, tag="published"):
    """The work is at the forge, and a pull request onto the feature's branch shows it."""

    number: int
    url: str
    commit: str


class PackageRemarksReceived(PackageEvent, frozen=True, tag="remarked"):
    """People asked for changes at the pull request."""

    remarks: tuple[AcceptedRemark, ...]


class PackageHeld(PackageEvent, frozen=True, tag="held"):
    """The pull request is not as it should be: a person sees to it, and it goes on from there."""

    reason: str
    remediation: str


class PackageMerged(PackageEvent, frozen=True, tag="merged"):
    commit: str


class PackageNotMerged(PackageEvent, frozen=True, tag="not-merged"):
    """The feature's branch could not take the work.

    A conflict, or checks that fail on the merged tree.
    """

    reason: str


class CheckoutsRemoved(PackageEvent, frozen=True, tag="cleaned"):
    """The checkouts are gone; what was uncommitted in them is saved."""


class PackageResolved(PackageEvent, frozen=True, tag="resolved"):
    """A person has dealt with the blocker."""

    how: str
    by: OrderOrigin = OrderOrigin()


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
    | PackageRemarksReceived
    | PackageHeld
    | PackageMerged
    | PackageNotMerged
    | CheckoutsRemoved
    | PackageResolved
)


def failure_key(findings: str) -> str:
    """A name for what went wrong.

    The same for the same failure, however long it took and wherever it lay in memory.
    """
    lines = (_VOLATILE_VALUES.sub("", line).strip() for line in findings.splitlines())
    return sha256(
        "\n".join(line for line in lines if line).encode(errors="surrogateescape")
    ).hexdigest()[:16]


def first_line(findings: str) -> str:
    """What was found, in a line."""
    line = next((line.strip() for line in findings.splitlines() if line.strip()), "none was given")
    if len(line) <= MAX_QUOTE_CHARS:
        return line
    return f"{line[:MAX_QUOTE_CHARS]}..."
