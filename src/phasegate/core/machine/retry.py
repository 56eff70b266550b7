"""Classify failures and compute retry delays.

The classified text is untrusted, but the most that it can cause is a bounded wait.
"""

from __future__ import annotations

import re
from enum import StrEnum

from phasegate.core.machine.package_events import JobEndKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.core.machine.feature_events import FeatureLimits, JobEnded
    from phasegate.core.machine.feature_state import Feature
    from phasegate.core.machine.package_events import PackageJobEnded, PackageLimits
    from phasegate.core.machine.package_state import PendingWork

MAX_CLASSIFIED_CHARS = 16_000
# EX_TEMPFAIL of sysexits.h: the program asks for a retry
EX_TEMPFAIL = 75
RETRY_BACKOFF_BASE_S = 2.0
MAX_RETRY_BACKOFF_S = 300.0


class Fault(StrEnum):
    """The kind of a failure; it decides whether a retry makes sense."""

    NETWORK = "network"
    LOCK = "lock file"
    RATE_LIMIT = "rate limit"
    FLAKY_TEST = "flaky test"
    TEMPORARY = "temporary failure"
    NO_PROGRAM = "missing program"
    PERMANENT = "permanent"

    @property
    def is_transient(self) -> bool:
        return self not in (Fault.NO_PROGRAM, Fault.PERMANENT)


# Each phrase is one that programs print about their own failure. A bare "timeout" or "locked" is
# not enough: output of tests contains these too.
_FAULT_PATTERNS: tuple[tuple[Fault, re.Pattern[str]], ...] = (
    (
        Fault.RATE_LIMIT,
        re.compile(
            r"\b(?:http|status|error|code)[ :=/.0-9]{0,8}429\b"
            r"|\b429 too many requests\b|\btoo many requests\b"
            r"|\brate[ _-]?limit(?:ed|s)?[ _-](?:exceeded|reached|error|hit)\b|\brate_limit_error\b"
            r"|\b(?:usage|quota) (?:limit )?(?:exceeded|reached)\b"
            r"|\bresource_exhausted\b|\boverloaded_error\b",
            re.I,
        ),
    ),
    (
        Fault.NETWORK,
        re.compile(
            r"\b(?:ECONNRESET|ECONNREFUSED|ECONNABORTED|ETIMEDOUT)\b"
            r"|\b(?:EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ENOTFOUND)\b"
            r"|\bcould not resolve (?:host|proxy)\b|\btemporary failure in name resolution\b"
            r"|\bconnection (?:reset by peer|timed out|refused)\b"
            r"|\bnetwork is unreachable\b|\bno route to host\b"
            r"|\btls handshake timeout\b|\bread timed out\b|\bsocket hang up\b|\bi/o timeout\b"
            r"|\b50[234] (?:bad gateway|service unavailable|gateway time-?out)\b"
            r"|\bspurious network error\b",
            re.I,
        ),
    ),
    (
        Fault.LOCK,
        re.compile(
            r"\.lock': file exists\b|\banother git process seems to be running\b"
            r"|\bdatabase is locked\b"
            r"|\bcould not (?:get|acquire|obtain) (?:the )?(?:file )?lock\b"
            r"|\bunable to (?:acquire|obtain) lock\b"
            r"|\bresource temporarily unavailable\b|\btext file busy\b|\bEBUSY\b",
            re.I,
        ),
    ),
)


def classify_failure(exit_status: int | None, text: str) -> Fault:
    """Classify a failed run by its exit status and the end of its output.

    A missing exit status (killed by a signal, timed out) is permanent: a retry would end the same
    way.
    """
    if exit_status is None:
        return Fault.PERMANENT

    end = text[-MAX_CLASSIFIED_CHARS:]
    for fault, pattern in _FAULT_PATTERNS:
        if pattern.search(end):
            return fault

    if exit_status == EX_TEMPFAIL:
        return Fault.TEMPORARY

    return Fault.PERMANENT


def retry_backoff_s(
    attempt: int,
    jitter: float,
    *,
    base_s: float = RETRY_BACKOFF_BASE_S,
    cap_s: float = MAX_RETRY_BACKOFF_S,
) -> float:
    """Return the seconds to wait after the `attempt`-th failure (from 1).

    Exponential back-off with full jitter; `jitter` is a random number in [0, 1).
    """
    # 2 ** 30 is above any cap; more would overflow
    exponent = min(max(attempt, 1) - 1, 30)
    ceiling = min(cap_s, base_s * 2.0**exponent)
    return ceiling * min(max(jitter, 0.0), 1.0)


def count_retry(
    ended: JobEnded | PackageJobEnded,
    counters: Feature | PendingWork,
    limits: FeatureLimits | PackageLimits,
) -> dict[str, int | bool] | None:
    """Return the counters to update if a failed job is retried, or None if it is not retried.

    The same rule applies to agents of phases and of packages.
    """
    match ended.end:
        case JobEndKind.LOST if not ended.last_seen:
            return {}
        case JobEndKind.LOST if counters.losses < limits.losses:
            return {"losses": counters.losses + 1}
        case JobEndKind.TRANSIENT if counters.retries < limits.retries:
            return {"retries": counters.retries + 1}
        case JobEndKind.RATE_LIMITED if counters.pauses < limits.pauses:
            return {"pauses": counters.pauses + 1}
        case JobEndKind.UNREADABLE if not counters.asked_again:
            return {"asked_again": True}
        case _:
            return None


def explain_give_up(
    ended: JobEnded | PackageJobEnded, counters: Feature | PendingWork
) -> tuple[str, str]:
    """Return reason and remedy for a job that is not retried."""
    if ended.end is not JobEndKind.LOST:
        return ended.reason or f"the agent run ended with {ended.end}", ended.remediation

    last_reason = ended.reason or "the reason is unknown"
    return (
        f"the agent's run was lost {counters.losses + 1} times; the last time: {last_reason}",
        "find out what ended it (memory, a kill, a crash) with phasegate audit show, then retry",
    )
