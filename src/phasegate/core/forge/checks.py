"""Decide from the checks of a commit on a forge whether its pull request may be merged.

Phasegate's own status never counts. What has not registered, has not ended or is unknown is not
green.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

# The context of the commit status that Phasegate sets
OWN_CONTEXT = "phasegate"
RED_CI = "CI is red: "
_MAX_NAMES = 5


class CheckState(StrEnum):
    PASSED = "passed"
    RUNNING = "running"
    # A user has to start it
    MANUAL = "manual"
    FAILED = "failed"


class Check(msgspec.Struct, frozen=True):
    """A check run, job or commit status on a forge."""

    name: str
    state: CheckState


class CheckPolicy(StrEnum):
    """Which checks must exist, in addition to the ones the forge requires."""

    # At least one
    ANY = "any"
    NONE = "none"


class CommitChecks(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of a pull request's head, and the state of its base on the forge."""

    found: tuple[Check, ...] = ()
    # Names, or patterns with `*`, that the rules of the base require
    required: tuple[str, ...] = ()
    # Whether the head of the base has checks; asked only if the pull request has none
    base_has_checks: bool = True


class CheckVerdict(msgspec.Struct, frozen=True):
    """Whether the checks allow a merge. None: not yet."""

    passed: bool | None
    reason: str = ""
    # Waiting alone will not help
    needs_user: bool = False


def judge_checks(
    checks: CommitChecks, policy: CheckPolicy | Sequence[str], base: str
) -> CheckVerdict:
    """Judge the checks of a commit; `policy` may name checks that must exist.

    Every check that has registered must pass, whether it is named or not.
    """
    foreign = select_foreign_checks(checks.found)
    failed = [check.name for check in foreign if check.state is CheckState.FAILED]
    if failed:
        return CheckVerdict(False, f"{RED_CI}{_format_names(failed)}", needs_user=True)

    # Without names: they change with every job that ends
    if any(check.state is CheckState.RUNNING for check in foreign):
        return CheckVerdict(None, "CI is running")

    manual = [check.name for check in foreign if check.state is CheckState.MANUAL]
    if manual:
        reason = f"CI waits for a user to start {_format_names(manual)}"
        return CheckVerdict(None, reason, needs_user=True)

    named = () if isinstance(policy, CheckPolicy) else tuple(policy)
    named = tuple(pattern for pattern in named if pattern != OWN_CONTEXT)
    missing = [
        pattern
        for pattern in dict.fromkeys((*checks.required, *named))
        if pattern != OWN_CONTEXT and not _is_matched(pattern, foreign)
    ]
    if missing:
        return CheckVerdict(None, f"no result yet of the check {_format_names(missing)}")

    if foreign or policy is CheckPolicy.NONE or named:
        return CheckVerdict(True)

    if checks.base_has_checks:
        return CheckVerdict(None, "no CI check has registered yet")

    return CheckVerdict(
        None,
        f"neither it nor {base} has a CI check: merge it on the forge, "
        'or set checks = "none" in [merge]',
        needs_user=True,
    )


def select_foreign_checks(checks: Iterable[Check]) -> list[Check]:
    """Return the checks that are not Phasegate's own status, which has always passed."""
    return [
        check
        for check in checks
        if check.name != OWN_CONTEXT or check.state is not CheckState.PASSED
    ]


def _is_matched(pattern: str, checks: Sequence[Check]) -> bool:
    # Only `*` is special: names of jobs contain brackets
    escaped = pattern.replace("[", "[[]").replace("?", "[?]")
    return any(fnmatchcase(check.name, escaped) for check in checks)


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(dict.fromkeys(names[:_MAX_NAMES]))
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
