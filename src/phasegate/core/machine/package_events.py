"""What can happen to a work package on its way. The journal holds these; `core/machine/package_machine` reads them."""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256

import msgspec

from phasegate.core.answer.vocabulary import TaskStatus, Verdict
from phasegate.core.workflow.origin import OrderOrigin

_VOLATILE_VALUES = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:m?s|sec(?:onds?)?|min(?:utes?)?)\b|\b0x[0-9a-f]+\b|\b\d\d:\d\d(?::\d\d)?\b", re.I
)
MAX_QUOTE_CHARS = 200
MAX_PAUSES = 20  # of one run, for limits of the provider
MAX_LOSSES = 3  # of one run: one that ends whoever drives it would go round for ever


class PackageLimits(msgspec.Struct, frozen=True):
    """How often things are tried."""

    rounds: int = 5
    retries: int = 3
    agents: int = 1
    pauses: int = MAX_PAUSES
    losses: int = MAX_LOSSES


class JobEndKind(StrEnum):
    """How an agent's job ended, as we see it."""

    DONE = "done"  # exit code 0 and a valid answer
    LOST = "lost"  # we died before its end: it is run again, a few times, and that counts as no try
    TRANSIENT = "transient"  # worth trying again by itself: network, a lock, a rate limit
    RATE_LIMITED = "rate limited"  # the provider says when it goes on: tried again then, and that counts as no try
    UNREADABLE = "unreadable"  # the work may be good, the answer is missing or malformed: ask once more
    BLOCKED = "blocked"  # the agent says that it cannot go on
    FAILED = "failed"  # a timeout, a crash, a failure response


class PackageEvent(msgspec.Struct, frozen=True, tag=True):
    """Something that happened. The journal holds nothing else."""


class PackagePrepared(PackageEvent, frozen=True, tag="prepared"):
    """The package's branch and checkouts are there, from this commit of the feature's branch."""

    base: str
    entrants: tuple[str, ...] = ()  # the agents of a contest, one an attempt; none: there is no contest
    delta_is_final: bool = False  # whether a review of what changed since the last one is enough for a merge
    at_forge: bool = False  # whether a pull request shows the work, and merges it


class PackageJobStarted(PackageEvent, frozen=True, tag="job-started"):
    job: str
    role: str  # implement or review
    round: int
    agent_index: int = 0
    agent: str = ""  # as people know it
    saved_tokens: int = 0  # of a review of what changed since the last one: by how much its prompt is shorter


class PackageJobEnded(PackageEvent, frozen=True, tag="job-ended"):
    job: str
    end: JobEndKind
    reason: str = ""
    remediation: str = ""
    cleanup: bool = False
    last_seen: str = ""  # of a lost job: when it last gave a sign. Without it, a loss of before they were counted
    tasks: tuple[tuple[str, TaskStatus], ...] = ()  # as the implementer reports them


class Harvested(PackageEvent, frozen=True, tag="harvested"):
    """What was taken over from the checkouts: a commit, or none where nothing differs from the base, or violations."""

    commit: str = ""
    violations: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()  # where a key stood that was lent to the agent
    remarks: str = ""  # the paper with what a diff would not make plain to the reviewer
    there: tuple[str, ...] = ()  # where nothing differs from the base: the deliverables that it has already
    unchanged: bool = False  # the round brought nothing: the commit is that of the round before, or there is none


class Validated(PackageEvent, frozen=True, tag="validated"):
    """What our own checks found on a clean checkout; no failures means that the manifest passed."""

    commit: str
    failures: tuple[str, ...] = ()
    without_program: tuple[str, ...] = ()  # of the failed checks, those whose program is not there
    evidence: str = ""  # the paper with what was found, for the reviewer
    claims: str = ""  # the paper with what the agents said and is not so
    alike: str = ""  # the `failure_key` of the failures


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
    """An attempt's checkout and branch are the package's now; the others are kept under these refs, by attempt."""

    attempt: int
    kept: dict[int, str] = {}


class Reviewed(PackageEvent, frozen=True, tag="reviewed"):
    verdict: Verdict
    findings: str = ""
    delta: bool = False  # it was about what changed since the last review, with the whole by reference
    alike: str = ""  # the `failure_key` of the findings


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
    """The feature's branch could not take the work: a conflict, or checks that fail on the merged tree."""

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
    """A name for what went wrong: the same for the same failure, however long it took and wherever it lay in memory."""
    lines = (_VOLATILE_VALUES.sub("", line).strip() for line in findings.splitlines())
    return sha256("\n".join(line for line in lines if line).encode(errors="surrogateescape")).hexdigest()[:16]


def first_line(findings: str) -> str:
    """What was found, in a line."""
    line = next((line.strip() for line in findings.splitlines() if line.strip()), "none was given")
    return line if len(line) <= MAX_QUOTE_CHARS else f"{line[:MAX_QUOTE_CHARS]}..."
