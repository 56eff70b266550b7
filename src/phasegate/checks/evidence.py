"""Evidence: what we found out ourselves about some work, check by check. What is not in it did not happen."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from phasegate.checks.test_output import TestRun
from phasegate.core.machine.retry import Fault

_NOT_FOUND = 127  # as a shell ends


class Outcome(StrEnum):
    """There is no fourth: what could not be found out has failed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_ASKED = "not asked for"


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question about the work and its answer. A failure always says what to do."""

    name: str
    outcome: Outcome
    summary: str
    remedy: str = ""
    notes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    exit_status: int | None = None
    duration_s: float | None = None
    ended_at_s: float = 0.0  # of its command, in seconds since 1970
    excerpt: str = ""  # of the output: neutralised and cut
    tests: TestRun | None = None
    coverage_percent: float | None = None
    findings: tuple[str, ...] = ()  # of a command that failed and runs no tests: its lines, to be compared
    log: str = ""  # the file with the whole output
    fault: Fault | None = None  # of a failure, or of one that went away when it was tried again

    @property
    def lacks_machines_program(self) -> bool:
        """Whether a program was not found by its bare name. One with a path may be the work's to bring; this is not."""
        return self.exit_status == _NOT_FOUND and self.fault is Fault.NO_PROGRAM and "/" not in self.summary

    def __post_init__(self) -> None:
        if self.outcome is Outcome.FAILED and not self.remedy:
            raise ValueError(f"the failed check {self.name!r} does not say what to do")


class Evidence(msgspec.Struct, frozen=True):
    """All checks, in the order in which they were made."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether something was shown and nothing failed."""
        outcomes = {check.outcome for check in self.checks}
        return Outcome.PASSED in outcomes and Outcome.FAILED not in outcomes

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)

    @property
    def fault(self) -> Fault | None:
        """The transient fault behind all failures, if another try may mend every one of them; None if it cannot."""
        faults = [check.fault for check in self.failures]
        return faults[0] if faults and all(fault and fault.is_transient for fault in faults) else None

    @property
    def coverage_percent(self) -> float | None:
        """What was measured, whether it suffices or not."""
        return next((check.coverage_percent for check in self.checks if check.coverage_percent is not None), None)

    def check(self, name: str) -> Check | None:
        """The check of this name; of several, made at several roots, one that failed."""
        found = [check for check in self.checks if check.name == name]
        return next((check for check in found if check.outcome is Outcome.FAILED), found[0] if found else None)


def passed(name: str, summary: str, notes: Iterable[str] = ()) -> Check:
    return Check(name=name, outcome=Outcome.PASSED, summary=summary, notes=tuple(notes))


def failed(name: str, summary: str, remedy: str, notes: Iterable[str] = ()) -> Check:
    return Check(name=name, outcome=Outcome.FAILED, summary=summary, remedy=remedy, notes=tuple(notes))


def not_asked(name: str, why: str) -> Check:
    return Check(name=name, outcome=Outcome.NOT_ASKED, summary=why)
