"""The checks in the evidence of a package, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phasegate.core.text.wording import pluralize

# A check: `- test: passed - 3 tests ran and passed`
_CHECK_LINE = re.compile(r"- ([a-z -]+): (passed|failed|not asked for|[a-z ]+?) - (.*)")
# A note: `  - 2 passed, 0 failed, 0 skipped; before the work: 1 passed, 0 failed, 0 skipped`
_BEFORE = re.compile(r"  - (.+); before the work: (.+)")
_LOG = re.compile(r"  - whole output: .*kept in (\S+)")


class CheckLine(NamedTuple):
    """One check: its outcome, its findings, and the outcome of the same command before the work."""

    name: str
    # passed, failed, not asked for
    outcome: str
    summary: str
    # Counted tests now and before the work; empty if none were counted
    counts: str = ""
    before: str = ""
    # The folder with its whole output
    log: str = ""


def parse_check_lines(evidence: str) -> tuple[CheckLine, ...]:
    """Return the checks that a page of evidence lists."""
    checks: list[CheckLine] = []
    for line in evidence.splitlines():
        if match := _CHECK_LINE.fullmatch(line):
            name, outcome, summary = match.groups()
            checks.append(CheckLine(name, outcome, summary))
        elif checks and (match := _BEFORE.fullmatch(line)):
            checks[-1] = checks[-1]._replace(counts=match[1], before=match[2])
        elif checks and (match := _LOG.fullmatch(line)):
            checks[-1] = checks[-1]._replace(log=match[1])

    return tuple(checks)


def summarize_checks(checks: Iterable[CheckLine]) -> Iterator[str]:
    """Yield the checks that did not pass, then the test result and the number of passed checks."""
    checks = [*checks]
    for check in checks:
        if check.outcome not in ("passed", "not asked for"):
            yield f"{check.name}: {check.outcome.upper()} - {check.summary}{_before_note(check)}"

    for check in checks:
        if check.name == "test" and check.outcome == "passed":
            yield f"test: {check.summary}{_before_note(check)}"

    passed = [check.name for check in checks if check.outcome == "passed"]
    if passed:
        yield f"{pluralize(len(passed), 'check')} passed: {', '.join(passed)}"


def find_test_check(checks: Iterable[CheckLine]) -> CheckLine | None:
    """Return the check that ran the tests, or None without one."""
    found = (check for check in checks if check.name == "test" and check.outcome != "not asked for")
    return next(found, None)


def _before_note(check: CheckLine) -> str:
    return f"; before the work: {check.before}" if check.before else ""
