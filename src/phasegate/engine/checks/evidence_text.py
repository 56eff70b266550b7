"""Render evidence: for a reviewer, and as the findings of a failed round."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence
from phasegate.checks.failed_tests import FailedTest
from phasegate.checks.test_output import TestRun
from phasegate.prompts.shipped_texts import render_note

# Lines at the end of a command's output, where runners print their summary
_END_LINES = 6
# Folder of a reviewer's copy with the output of the commands
OUTPUT_FOLDER = "phasegate-output"
_OUTPUT_REFERENCE = re.compile(
    rf"^  - whole output: {OUTPUT_FOLDER}/(?P<name>[\w.-]+\.log) in a reviewer's folder, "
    r"kept in \.phasegate/checks/(?P<kept>[\w-][\w.-]*)$",
    re.M,
)
_MAX_OUTPUT_CHARS = 1_000_000
_END_LINES_OF_FAILURE = 20


def describe_evidence(evidence: Evidence) -> str:
    """Render the evidence for a reviewer: commands, test counts, and the end of each output."""
    lines = [render_note("evidence"), ""]

    for check in evidence.checks:
        lines.append(f"- {check.name}: {check.outcome} - {check.summary}")
        lines += (f"  - {line}" for line in _list_command_facts(check))
        lines += (f"  - {note}" for note in check.notes)
        if check.outcome is CheckOutcome.FAILED:
            lines += (f"  {line}" for line in _list_failure_lines(check))
        elif check.argv:
            lines += (f"      {line}" for line in _get_output_end(check, _END_LINES))

    return "\n".join(lines) + "\n"


def describe_questions(questions: Sequence[str]) -> str:
    """Render the findings that the reviewer has to answer, each by its id."""
    if not questions:
        return ""
    lines = "".join(f"- {question}\n" for question in questions)
    return f"\n{render_note('questions')}\n\n{lines}"


def describe_failures(evidence: Evidence) -> tuple[str, ...]:
    """Render every failure with its command and remedy, for the next round.

    Failed tests are named with their assertions; other commands are quoted.
    """
    return tuple("\n".join(_list_finding_lines(check)) for check in evidence.failures)


def read_outputs(checks_folder: Path, evidence: str) -> dict[str, str]:
    """Return the end of each output that a rendered evidence refers to, by file name."""
    logs = {
        match["name"]: checks_folder / match["kept"] / match["name"]
        for match in _OUTPUT_REFERENCE.finditer(evidence)
    }
    return {
        name: log.read_text(encoding="utf-8", errors="replace")[-_MAX_OUTPUT_CHARS:]
        for name, log in logs.items()
        if log.is_file()
    }


def _list_finding_lines(check: CheckResult) -> Iterator[str]:
    yield f"{check.name}: {check.summary}"
    if check.argv and check.argv[-1] not in check.remedy:
        yield f"  Command: `{check.argv[-1]}`"
    yield f"  What to do: {check.remedy}"
    yield from (f"  - {note}" for note in check.notes)
    yield from _list_failure_lines(check)


def _list_command_facts(check: CheckResult) -> Iterator[str]:
    """Yield the command of a check, the counted tests and the path of its log."""
    if check.argv:
        status = "" if check.exit_status is None else f", exit status {check.exit_status}"
        yield f"ran `{check.argv[-1]}`{status}"
    if check.tests is not None:
        before = ""
        if check.tests_before is not None:
            before = f"; before the work: {_format_counts(check.tests_before)}"
        yield f"{_format_counts(check.tests)}{before}"
    if check.log:
        log = Path(check.log)
        kept = f".phasegate/checks/{log.parent.name}"
        yield f"whole output: {OUTPUT_FOLDER}/{log.name} in a reviewer's folder, kept in {kept}"


def _format_counts(tests: TestRun) -> str:
    return f"{tests.passed} passed, {tests.failed} failed, {tests.skipped} skipped"


def _list_failure_lines(check: CheckResult) -> Iterator[str]:
    """Yield the failed tests with their assertions, or else the output of the command."""
    if check.failed_tests:
        yield "  Failed tests:"
        for test in check.failed_tests:
            yield from _list_test_lines(test)
        failed = check.tests.failed if check.tests else 0
        if failed > len(check.failed_tests):
            yield f"  - {failed - len(check.failed_tests)} more are not listed"
    elif check.tests is not None and check.tests.failed:
        yield "  The runner did not name the failed tests. The end of its output:"
        yield from (f"    {line}" for line in _get_output_end(check, _END_LINES_OF_FAILURE))
    elif check.excerpt:
        yield "  Output:"
        yield from check.excerpt.splitlines()


def _list_test_lines(test: FailedTest) -> Iterator[str]:
    yield f"  - {test.name}"
    yield from (f"      {line}" for line in test.detail)


def _get_output_end(check: CheckResult, count: int) -> list[str]:
    return [line for line in check.excerpt.splitlines() if line.strip()][-count:]
