"""Run test commands with our own reporter, and read its results.

A test file is a program of the agent and can print anything, even the summary of a runner. Our
reporter runs inside of the runner and writes each result to a file outside of the checkout. A run
that was ended early has no end in that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from phasegate.checks.test_output import MAX_FAILING_NAMES, TestRun
from phasegate.core.test_strength.model import ReportedTest, TestOutcome
from phasegate.typed import read_json

# Programs for the interpreter of the project, as text: they are not modules of Phasegate.
_SHIPPED_REPORTERS = Path(__file__).parent / "reporters"
MAX_REPORT_BYTES = 64_000_000
MAX_REPORTED_TESTS = 50_000
_PYTEST = re.compile(r"(?:^|[\s;&(/])(?:pytest|py\.test)(?=\s|$)")
_UNITTEST = re.compile(r"(\bpython[0-9.]*\s+(?:-[A-DF-HJ-Za-z]+\s+)*-m\s+)unittest(?=\s|$)")
_NODE_TEST = re.compile(r"\bnode\s(?:[^;&|\n\"]*\s)?--test(?=[\s\"]|$)")
# The interpreter ignores PYTHONPATH, or another program sets the variables
_OWN_ENVIRONMENT = re.compile(r"\bpython[0-9.]*\s+-[A-Za-z]*[IE]|\b(?:tox|nox|env -i)\b")
_NODE_SCRIPT = re.compile(r"\b(?:npm|pnpm|yarn|bun|npx)\b")


class ReporterSetup(NamedTuple):
    """A command line that reports its tests, and the variables that it needs."""

    line: str
    env: Mapping[str, str]


class RunReport(NamedTuple):
    """What the reporter wrote. `is_complete` is False if the runner did not end by itself."""

    cases: tuple[ReportedTest, ...]
    is_complete: bool
    # Functions of the runner that were replaced; None if they were not watched
    changed: tuple[str, ...] | None = None

    @property
    def passed(self) -> int:
        return sum(case.outcome is TestOutcome.PASSED for case in self.cases)

    @property
    def failing(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.id for case in self.cases if case.outcome.is_failure))


def write_reporters(folder: Path) -> None:
    """Write our reporters to a folder that test runs can read."""
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    for source in _SHIPPED_REPORTERS.glob("*.txt"):
        target = folder / source.stem
        target.unlink(missing_ok=True)
        target.write_bytes(source.read_bytes())


def add_reporter(
    line: str, report: Path, programs: Path, scripts: str, wanted: tuple[str, ...] = ()
) -> ReporterSetup | None:
    """Return the command with our reporter, or None if no reporter fits.

    `programs` is the folder of the reporters, `scripts` the text of package.json. `wanted` are the
    files or tests to run; only some runners can select them.
    """
    env = {"PHASEGATE_TEST_REPORT": str(report)}
    if wanted:
        env["PHASEGATE_TESTS_WANTED"] = msgspec.json.encode(wanted).decode()

    if _PYTEST.search(line) and not _OWN_ENVIRONMENT.search(line):
        options = "-p phasegate_pytest"
        if wanted:
            options += " --continue-on-collection-errors"
        env["PYTEST_ADDOPTS"] = options
        return _with_python_path(line, env, programs)

    if _UNITTEST.search(line) and not _OWN_ENVIRONMENT.search(line):
        return _with_python_path(_UNITTEST.sub(r"\1phasegate_unittest", line), env, programs)

    is_node = _NODE_TEST.search(line) or (_NODE_SCRIPT.search(line) and _NODE_TEST.search(scripts))
    if is_node and "--test-reporter" not in f"{line}{scripts}" and " " not in str(report):
        options = (
            "--test-reporter=tap --test-reporter-destination=stdout"
            f" --test-reporter={programs / 'phasegate_node.mjs'}"
            f" --test-reporter-destination={report}"
        )
        # Node before 20 refuses these options in the variable
        probe = f"NODE_OPTIONS='{options}' node -e 0 2>/dev/null && export NODE_OPTIONS='{options}'"
        # The first line is what users are shown
        shown = line.partition("\n")[0]
        return ReporterSetup(f"# {shown}\n{probe}; {line}", env)

    return None


def can_select_tests(line: str) -> bool:
    """Return True if a reporter of this command can run some of the tests only."""
    return bool(
        (_PYTEST.search(line) or _UNITTEST.search(line)) and not _OWN_ENVIRONMENT.search(line)
    )


def _with_python_path(line: str, env: Mapping[str, str], programs: Path) -> ReporterSetup:
    own = str(programs)
    line = re.sub(r"\bPYTHONPATH=", f"PYTHONPATH={own}:", line)
    return ReporterSetup(line, {**env, "PYTHONPATH": own})


class _ReportLine(msgspec.Struct):
    begin: int | None = None
    end: int | None = None
    file: str = ""
    name: str = ""
    outcome: TestOutcome | None = None
    changed: tuple[str, ...] | None = None


def read_run_report(path: Path) -> RunReport | None:
    """Read a report, or return None if no runner started to write one.

    A report that is too large or damaged is incomplete.
    """
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return RunReport((), is_complete=False)
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None

    lines = [*_parse_lines(text)]
    if not lines:
        return None

    known = [line for line in lines if line is not None]
    begins = sum(line.begin is not None for line in known)
    ends = sum(line.end is not None for line in known)
    cases = tuple(
        ReportedTest(line.file, line.name, line.outcome)
        for line in known
        if line.outcome is not None
    )
    is_complete = len(known) == len(lines) and begins == ends
    watched = [line.changed for line in known if line.changed is not None]
    changed = tuple(sorted({name for names in watched for name in names})) if watched else None
    return RunReport(cases[:MAX_REPORTED_TESTS], is_complete, changed)


def _parse_lines(text: str) -> Iterator[_ReportLine | None]:
    for line in text.splitlines():
        try:
            yield read_json(line, _ReportLine)
        except msgspec.DecodeError:
            yield None


def find_report_problem(report: RunReport, parsed: TestRun | None) -> str | None:
    """Return why the output of a test run cannot be believed, or None if it can."""
    claimed = parsed.passed if parsed is not None else 0
    if not report.is_complete:
        return (
            f"the test runner was ended before it finished: {report.passed} tests had passed"
            f", the output claims {claimed}"
        )

    is_same_runner = parsed is not None and parsed.runner in ("pytest", "unittest", "node --test")
    if is_same_runner and claimed > report.passed:
        return (
            f"the output claims {claimed} passed tests, but the test runner ran {report.passed}:"
            " the summary is not its own"
        )

    if parsed is not None and not parsed.failed and report.failing:
        return f"the output hides failed tests: {', '.join(report.failing[:5])}"

    return None


def merge_report(parsed: TestRun | None, report: RunReport | None) -> TestRun | None:
    """Add the reported tests to those that were parsed from the output."""
    if report is None:
        return parsed
    if parsed is not None:
        return replace(
            parsed,
            cases=report.cases,
            is_reported=report.is_complete,
            changed_functions=report.changed,
        )
    if not report.is_complete:
        return None

    return TestRun(
        runner="reported",
        passed=report.passed,
        failed=len(report.failing),
        failing=report.failing[:MAX_FAILING_NAMES],
        cases=report.cases,
        is_reported=True,
        changed_functions=report.changed,
    )
