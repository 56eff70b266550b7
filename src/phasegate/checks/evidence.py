"""Evidence: what we found out ourselves about some work, check by check.

What is not in it did not happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from phasegate.checks.test_output import TestRun
from phasegate.core.machine.retry import Fault

# As a shell ends
_EXIT_NOT_FOUND = 127


class CheckOutcome(StrEnum):
    """There is no fourth: what could not be found out has failed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_REQUESTED = "not asked for"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question about the work and its answer. A failure always says what to do."""

    name: str
    outcome: CheckOutcome
    summary: str
    remedy: str = ""
    notes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    exit_status: int | None = None
    duration_s: float | None = None
    # Of its command, in seconds since 1970
    ended_at_s: float = 0.0
    # Of the output: neutralised and cut
    excerpt: str = ""
    tests: TestRun | None = None
    coverage_percent: float | None = None
    # Of a command that failed and runs no tests: its lines, to be compared
    findings: tuple[str, ...] = ()
    # The file with the whole output
    log: str = ""
    # Of a failure, or of one that went away when it was tried again
    fault: Fault | None = None

    @property
    def is_system_program_missing(self) -> bool:
        """Whether a program was not found by its bare name.

        One with a path may be the work's to bring; this is not.
        """
        return (
            self.exit_status == _EXIT_NOT_FOUND
            and self.fault is Fault.NO_PROGRAM
            and "/" not in self.summary
        )

    def __post_init__(self) -> None:
        if self.outcome is CheckOutcome.FAILED and not self.remedy:
            raise ValueError(f"the failed check {self.name!r} does not say what to do")


class Evidence(msgspec.Struct, frozen=True):
    """All checks, in the order in which they were made."""

    checks: tuple[CheckResult, ...]

    @property
    def has_passed(self) -> bool:
        """Whether something was shown and nothing failed."""
        outcomes = {check.outcome for check in self.checks}
        return CheckOutcome.PASSED in outcomes and CheckOutcome.FAILED not in outcomes

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple(check for check in self.checks if check.outcome is CheckOutcome.FAILED)

    @property
    def coverage_percent(self) -> float | None:
        """What was measured, whether it suffices or not."""
        return next(
            (check.coverage_percent for check in self.checks if check.coverage_percent is not None),
            None,
        )

    def find_check(self, name: str) -> CheckResult | None:
        """Return the check of this name; if several roots have one, a failed one."""
        found = [check for check in self.checks if check.name == name]
        return next(
            (check for check in found if check.outcome is CheckOutcome.FAILED),
            found[0] if found else None,
        )


def passed_check(name: str, summary: str, notes: Iterable[str] = ()) -> CheckResult:
    return CheckResult(name=name, outcome=CheckOutcome.PASSED, summary=summary, notes=tuple(notes))


def failed_check(name: str, summary: str, remedy: str, notes: Iterable[str] = ()) -> CheckResult:
    return CheckResult(
        name=name, outcome=CheckOutcome.FAILED, summary=summary, remedy=remedy, notes=tuple(notes)
    )


def not_requested_check(name: str, why: str) -> CheckResult:
    return CheckResult(name=name, outcome=CheckOutcome.NOT_REQUESTED, summary=why)
