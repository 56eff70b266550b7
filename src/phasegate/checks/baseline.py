"""Record the failures that existed before the work began, to distinguish them from new ones.

Tests are compared by name, linter and compiler findings line by line. An old failure is not the
agent's fault: it is listed in the evidence, but does not reject the work. With
`already_failing = "stop"`, no work starts on a failing base.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from phasegate.checks.evidence import CheckOutcome, CheckResult
from phasegate.checks.excerpt import format_names
from phasegate.checks.test_output import TestRun
from phasegate.core.machine.retry import Fault
from phasegate.core.text.escapes import sanitize_for_terminal

MAX_FINDINGS = 20_000
_NUMBER = re.compile(r"[0-9]+")
# Summary lines: a lower count of findings must not look like a new finding.
_SUMMARY = re.compile(
    r"(?:Found|✖|\[\*\]|Success|All checks|Checked|error: aborting|error: could not"
    r" compile|warning: `[^`]*` \("
    r"|# (?:errors?|problems?|warnings?)\b"
    r"|npm (?:ERR!|error|notice)|No fixes available|make: \*\*\*|> )"
)


class Baseline(msgspec.Struct, frozen=True):
    """Results of the same commands on the tree that the work started from."""

    failing_tests: frozenset[str] = frozenset()
    tests_executed: int = 0
    tests: TestRun | None = None
    test_status: int | None = None
    # Findings by purpose
    failed: Mapping[str, tuple[str, ...]] = {}
    # Exit statuses of the failed commands, by purpose
    statuses: Mapping[str, int | None] = {}
    without_program: frozenset[str] = frozenset()
    # The tests one by one, if our reporter ran, and the duration of the run
    test_run: TestRun | None = None
    test_duration_s: float = 0.0

    def new_failures(self, run: TestRun) -> list[str]:
        return [name for name in run.failing if name not in self.failing_tests]

    def old_failures(self, run: TestRun) -> list[str]:
        return [name for name in run.failing if name in self.failing_tests]


def build_baseline(checks: Iterable[CheckResult]) -> Baseline:
    """Build the baseline from the checks of the tree that the work starts from."""
    checks = tuple(checks)
    tested = next((check for check in checks if check.tests is not None), None)
    tests = tested.tests if tested else None
    failed = [check for check in checks if check.outcome is CheckOutcome.FAILED]

    return Baseline(
        failing_tests=frozenset(tests.failing) if tests else frozenset(),
        tests_executed=tests.executed if tests else 0,
        tests=tests,
        test_status=tested.exit_status if tested else None,
        failed={check.name: check.findings for check in failed},
        statuses={check.name: check.exit_status for check in failed},
        without_program=frozenset(
            check.name for check in failed if check.fault is Fault.NO_PROGRAM
        ),
        test_run=tests,
        test_duration_s=(tested.duration_s or 0.0) if tested else 0.0,
    )


def extract_findings(output: str, checkout: str) -> tuple[str, ...]:
    """Split the output of a command into findings, one per line.

    Numbers and checkout paths are removed, so that a finding that moved to another line is still
    recognized as the same finding.
    """
    lines = (_normalize_line(line, checkout) for line in sanitize_for_terminal(output).split("\n"))
    return tuple(line for line in lines if line and not _SUMMARY.match(line))[:MAX_FINDINGS]


def _normalize_line(line: str, checkout: str) -> str:
    return _NUMBER.sub("#", line.replace(f"{checkout}/", "").replace(checkout, "").strip())


def compare_with_baseline(
    check: CheckResult, baseline: Baseline | None, *, tolerate_old_failures: bool = False
) -> CheckResult:
    """Add notes to a check about the failures that existed before the work began.

    With `tolerate_old_failures`, a check that failed in the same way before does not reject the
    work.
    """
    if baseline is None:
        return check
    if check.tests:
        noted = _add_notes(check, _test_notes(check, baseline))
        new_failures = tuple(
            test for test in check.failed_tests if test.name not in baseline.failing_tests
        )
        return replace(
            noted,
            tests_before=baseline.tests,
            failed_tests=new_failures or check.failed_tests,
        )
    if check.outcome is not CheckOutcome.FAILED or check.name not in baseline.failed:
        return check

    new = new_findings(check, baseline)
    if tolerate_old_failures and not new and _is_unchanged_failure(check, baseline):
        return _mark_tolerated(check)

    notes = [
        "already failing before the work began",
        *([f"new: {format_names(new)}"] if new else []),
    ]
    return _add_notes(check, notes)


def new_findings(check: CheckResult, baseline: Baseline) -> list[str]:
    """Return the findings of a check that the baseline lacks or has less often."""
    return [*(Counter(check.findings) - Counter(baseline.failed.get(check.name, ()))).elements()]


def _is_unchanged_failure(check: CheckResult, baseline: Baseline) -> bool:
    """Return True if a check failed in the same way as before the work began.

    Tests are compared by name instead. A failed setup or a killed command has no complete output to
    compare, so it never counts as unchanged.
    """
    if (
        check.name in ("setup", "test", "coverage")
        or check.exit_status is None
        or len(check.findings) >= MAX_FINDINGS
    ):
        return False

    return bool(check.findings) or check.exit_status == baseline.statuses.get(check.name)


def _mark_tolerated(check: CheckResult) -> CheckResult:
    """Return a failed check as passed, because it failed in the same way before the work."""
    if check.fault is Fault.NO_PROGRAM:
        what = f"it could not run here before the work began either: {check.summary}"
        return replace(
            check, outcome=CheckOutcome.NOT_REQUESTED, summary=what, remedy="", fault=None
        )

    count = len(check.findings)
    summary = (
        f"exit status {check.exit_status}, as before the work began: {count} lines of findings,"
        " none of them new"
    )
    notes = (*check.notes, f"already failing before the work began: {format_names(check.findings)}")

    return replace(
        check, outcome=CheckOutcome.PASSED, summary=summary, remedy="", notes=notes, fault=None
    )


def _add_notes(check: CheckResult, notes: Iterable[str]) -> CheckResult:
    return replace(check, notes=(*check.notes, *notes))


def _test_notes(check: CheckResult, baseline: Baseline) -> Iterable[str]:
    assert check.tests is not None
    if check.outcome is CheckOutcome.FAILED and (old := baseline.old_failures(check.tests)):
        yield f"already failing before the work began: {format_names(old)}"
    if check.outcome is CheckOutcome.FAILED and (new := baseline.new_failures(check.tests)):
        yield f"new: {format_names(new)}"
    if check.tests.executed < baseline.tests_executed:
        yield (
            f"{check.tests.executed} tests ran, {baseline.tests_executed} before the work began:"
            " were some removed?"
        )
