"""Evidence that Phasegate gathered itself about some work, check by check.

Anything that is not in it counts as not done.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from phasegate.checks.failed_tests import FailedTest
from phasegate.checks.test_output import TestRun
from phasegate.core.machine.retry import Fault
from phasegate.core.test_strength.model import FlakyTest

# Exit status of a shell if the command does not exist
_EXIT_NOT_FOUND = 127


class CheckOutcome(StrEnum):
    """The outcome of a check. If it cannot be determined, the check has failed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_REQUESTED = "not asked for"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check of the work. A failure always has a remedy."""

    name: str
    outcome: CheckOutcome
    summary: str
    remedy: str = ""
    notes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    exit_status: int | None = None
    duration_s: float | None = None
    # When the command ended, in seconds since 1970
    ended_at_s: float = 0.0
    # Excerpt of the output, sanitized and truncated
    excerpt: str = ""
    tests: TestRun | None = None
    # The run of the same command before the work began
    tests_before: TestRun | None = None
    # The failed tests that the work is responsible for, with their assertions
    failed_tests: tuple[FailedTest, ...] = ()
    coverage_percent: float | None = None
    # Output lines of a failed command that runs no tests, for comparison with the baseline
    findings: tuple[str, ...] = ()
    # Tests that failed, and passed when they were run again alone
    flaky: tuple[FlakyTest, ...] = ()
    # The file with the complete output
    log: str = ""
    # Kind of the failure, even if it disappeared on a retry
    fault: Fault | None = None
    # The folder of the checkout in which the command ran
    root: str = ""
    # The command ran earlier, on the same tree
    is_recorded: bool = False

    @property
    def is_system_program_missing(self) -> bool:
        """Whether the command failed because a program of the machine is not installed.

        A program that was named with a path may be part of the work, so it does not count.
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
    """All checks, in the order in which they were run."""

    checks: tuple[CheckResult, ...]

    @property
    def has_passed(self) -> bool:
        """Whether at least one check passed and none failed."""
        outcomes = {check.outcome for check in self.checks}
        return CheckOutcome.PASSED in outcomes and CheckOutcome.FAILED not in outcomes

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple(check for check in self.checks if check.outcome is CheckOutcome.FAILED)

    @property
    def coverage_percent(self) -> float | None:
        """The measured coverage, even if it is too low."""
        return next(
            (check.coverage_percent for check in self.checks if check.coverage_percent is not None),
            None,
        )

    def find_check(self, name: str) -> CheckResult | None:
        """Return the check with this name; if several roots have one, prefer a failed one."""
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
