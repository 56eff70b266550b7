"""Parse the output of test runners: the number of tests, and the failed ones.

The output is matched against the exact format of each runner. Some print one summary at the end
(`last`), others one per part (`all`). Skipped tests do not count as run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from phasegate.core.test_strength.model import ReportedTest
from phasegate.typed import read_json

MAX_FAILING_NAMES = 2_000
MAX_LINE_CHARS = 2_000
# Characters scanned at each end of the output
MAX_SCANNED_CHARS = 1_000_000


class TestRun(msgspec.Struct, frozen=True):
    """The result of a test run. `failing` has the test names that the runner reported."""

    # Prevents pytest from collecting this class
    __test__ = False

    runner: str
    passed: int
    failed: int
    failing: tuple[str, ...] = ()
    # 0 also if the runner does not report it
    skipped: int = 0
    # Every test, if our reporter ran; empty in reports that were stored without it
    cases: tuple[ReportedTest, ...] = ()
    is_reported: bool = False
    # The output claims more than was reported
    is_forged: bool = False
    # Functions of the runner that the run replaced; None if they were not watched
    changed_functions: tuple[str, ...] | None = None

    @property
    def executed(self) -> int:
        return self.passed + self.failed


def parse_test_output(output: str) -> TestRun | None:
    """Sum up the results of all test runners in the output.

    Return None if it has no results of a known runner: nothing proves that tests ran.
    """
    # Very long output: summaries are at the end
    if len(output) > 2 * MAX_SCANNED_CHARS:
        output = f"{output[:MAX_SCANNED_CHARS]}\n{output[-MAX_SCANNED_CHARS:]}"

    lines = [_strip_colour(line) for line in output.replace("\r\n", "\n").split("\n")]
    found = [run for read in _PARSERS if (run := read(lines)) is not None]
    if not found:
        return None

    return TestRun(
        runner=", ".join(run.runner for run in found),
        passed=sum(run.passed for run in found),
        failed=sum(run.failed for run in found),
        skipped=sum(run.skipped for run in found),
        failing=tuple(dict.fromkeys(name for run in found for name in run.failing))[
            :MAX_FAILING_NAMES
        ],
    )


_COLOUR = re.compile(r"\x1b\[[0-9;]{0,30}m")


def _strip_colour(line: str) -> str:
    return _COLOUR.sub("", line[:MAX_LINE_CHARS])


OutputParser = Callable[[list[str]], TestRun | None]


def _match_lines(lines: Iterable[str], pattern: str) -> list[re.Match[str]]:
    form = re.compile(pattern)
    return [match for line in lines if (match := form.match(line))]


def _extract_names(lines: Iterable[str], pattern: str) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(match[match.lastindex or 0].strip() for match in _match_lines(lines, pattern))
    )


def _count_by_word(lines: Iterable[str], pattern: str) -> Counter[str]:
    """Add up the numbers in matching lines, by word.

    The pattern has the groups `word` and `number`.
    """
    counts: Counter[str] = Counter()
    for match in _match_lines(lines, pattern):
        counts[match["word"] or ""] += int(match["number"])
    return counts


def _count_words(text: str) -> Counter[str]:
    """Parse a text such as `2 failed, 1 passed` into counts by word."""
    counts: Counter[str] = Counter()
    for number, word in re.findall(r"\b([0-9]{1,8}) ([a-z]+)", text):
        counts[word] += int(number)
    return counts


def _make_test_run(
    runner: str,
    passed: int,
    failed: int,
    lines: Iterable[str],
    failing: str,
    skipped: int = 0,
) -> TestRun:
    """Create a test run; names are extracted only if tests failed."""
    return TestRun(
        runner=runner,
        passed=max(passed, 0),
        failed=failed,
        failing=_extract_names(lines, failing) if failed else (),
        skipped=skipped,
    )


def _make_numbered_parser(
    runner: str, end: str, failing: str, *, last: bool = False
) -> OutputParser:
    """Return a parser for a runner whose summary states numbers.

    `end` matches the summary, with groups such as `passed`, `failed`, `errors`, `skipped` or
    `total`.
    """

    def read(lines: list[str]) -> TestRun | None:
        """Sum the counts of the summary lines, or return None if the output has no summary."""
        ends = _match_lines(lines, end)
        if not ends:
            return None

        counts: Counter[str] = Counter()
        for match in ends[-1:] if last else ends:
            counts.update({name: int(number) for name, number in match.groupdict("0").items()})

        if "failed" in counts:
            failed = counts["failed"] + counts["errors"]
        else:
            failed = counts["total"] - counts["passed"]

        if "passed" in counts:
            passed = counts["passed"]
        else:
            passed = counts["total"] - failed - counts["skipped"]

        return _make_test_run(
            runner, passed, max(failed, 0), lines, failing, skipped=counts["skipped"]
        )

    return read


def _make_worded_parser(runner: str, end: str, broken: str, failing: str) -> OutputParser:
    """Return a parser for a runner whose summary reads like `2 failed, 1 passed`.

    A file that cannot be loaded counts as a failure, since it reports no failed tests.
    """

    def read(lines: list[str]) -> TestRun | None:
        ends = _match_lines(lines, end)
        if not ends:
            return None

        counts = sum((_count_words(match[1]) for match in ends), Counter[str]())
        files = sum(int(match[1]) for match in _match_lines(lines, broken))
        skipped = counts["skipped"] + counts["todo"]
        failed = counts["failed"] or files
        return _make_test_run(runner, counts["passed"], failed, lines, failing, skipped)

    return read


def _parse_pytest(lines: list[str]) -> TestRun | None:
    """Parse the summary line of pytest, such as `3 passed, 1 failed in 0.12s`."""
    ends = _match_lines(
        lines,
        r"=*(?: )?((?:no tests ran|[0-9]+ [a-z]+)(?:, [0-9]+ [a-z]+)*) in [0-9.]+s(?:"
        r" \([0-9:]+\))?(?: =*)?$",
    )
    if not ends:
        return None

    counts = _count_words(ends[-1][1])
    passed = counts["passed"] + counts["xfailed"] + counts["xpassed"]
    failed = counts["failed"] + counts["error"] + counts["errors"]

    failing = r"(?:FAILED|ERROR) ([^ ].*?)(?: - .*)?$"
    return _make_test_run("pytest", passed, failed, lines, failing, counts["skipped"])


def _parse_unittest(lines: list[str]) -> TestRun | None:
    """Parse the summary of unittest, or return None if the run was interrupted before it."""
    ran = _match_lines(lines, r"Ran ([0-9]{1,8}) tests? in [0-9.]+s$")
    if not ran:
        return None

    behind = lines[len(lines) - lines[::-1].index(ran[-1][0]) :]
    ends = _match_lines(behind, r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
    # The run was interrupted before its summary
    if not ends:
        return None

    details = Counter(
        {
            name.strip(): int(n)
            for name, n in re.findall(r"([a-z ]+)=([0-9]{1,8})", ends[0][1] or "")
        }
    )

    failed = details["failures"] + details["errors"] + details["unexpected successes"]

    return _make_test_run(
        "unittest",
        int(ran[-1][1]) - failed - details["skipped"],
        failed,
        lines,
        r"(?:FAIL|ERROR): (.+)$",
        details["skipped"],
    )


def _parse_go(lines: list[str]) -> TestRun | None:
    """Parse the output of `go test`; with `-v` it lists each test.

    Without `-v` there is one line per package, which counts as one test.
    """
    ended = _match_lines(
        lines, r"(ok|FAIL)\s+(\S+)\s+(?:[0-9.]+s|\(cached\)|\[build failed\]|\[setup failed\])(.*)$"
    )
    packages = [match for match in ended if "no tests to run" not in match[3]]
    if not packages:
        return None

    tests = _match_lines(lines, r"\s*--- (PASS|FAIL): (\S+)")
    failed_packages = [match[2] for match in packages if match[1] == "FAIL"]
    failing = tuple(dict.fromkeys(match[2] for match in tests if match[1] == "FAIL")) or tuple(
        failed_packages
    )
    passed = sum(match[1] == "PASS" for match in tests) or sum(
        match[1] == "ok" for match in packages
    )

    skipped = len(_match_lines(lines, r"\s*--- SKIP: "))
    return TestRun(
        runner="go test", passed=passed, failed=len(failing), failing=failing, skipped=skipped
    )


class _GoEvent(msgspec.Struct):
    Action: str
    Package: str = ""
    Test: str = ""


def _parse_go_json(lines: list[str]) -> TestRun | None:
    """Parse the events of `go test -json`."""
    events = [
        event
        for line in lines
        if line.startswith('{"') and '"Action"' in line and (event := _parse_go_event(line))
    ]
    ends = [event for event in events if event.Action in ("pass", "fail")]
    if not ends:
        return None

    failing = tuple(
        f"{event.Package}.{event.Test}" for event in ends if event.Action == "fail" and event.Test
    )
    broken = tuple(event.Package for event in ends if event.Action == "fail" and not event.Test)
    passed = sum(event.Action == "pass" and bool(event.Test) for event in ends)

    skipped = sum(event.Action == "skip" and bool(event.Test) for event in events)
    failing = failing or broken
    return TestRun(
        runner="go test -json", passed=passed, failed=len(failing), failing=failing, skipped=skipped
    )


def _parse_go_event(line: str) -> _GoEvent | None:
    try:
        return read_json(line, _GoEvent)
    except msgspec.DecodeError:
        return None


def _parse_mocha(lines: list[str]) -> TestRun | None:
    """Parse the counts of mocha, for several runs together."""
    at = [number for number, line in enumerate(lines) if _match_lines([line], _MOCHA_PASSING)]
    if not at:
        return None

    passed = sum(int(match[1]) for match in _match_lines(lines, _MOCHA_PASSING))
    failed = sum(int(match[1]) for match in _match_lines(lines, r"\s+([0-9]{1,8}) failing$"))
    # The runner repeats the failures with details after the summary
    named = lines[: at[-1]]

    pending = sum(int(match[1]) for match in _match_lines(lines, r"\s+([0-9]{1,8}) pending$"))
    return _make_test_run("mocha", passed, failed, named, r"\s+[0-9]+\) (.+)$", pending)


_MOCHA_PASSING = r"\s+([0-9]{1,8}) passing \([0-9.]+[a-z]+\)$"


def _parse_node(lines: list[str]) -> TestRun | None:
    """Parse the summary of `node --test`, as TAP or spec output."""
    counts = _count_by_word(
        lines, r"(?:#|ℹ) (?P<word>pass|fail|cancelled|skipped|todo) (?P<number>[0-9]{1,8})$"
    )
    if "pass" not in counts:
        return None

    # A file without tests is reported as one passed test.
    files = len(
        _match_lines(lines, r"(?:ok [0-9]+ - |✔ )/.{1,1000}\.[cm]?[jt]sx?(?: \([0-9.]+ms\))?$")
    )
    failing = r"\s*(?:not ok [0-9]+ - (.+)|✖ (.+) \([0-9.]+ms\))$"

    return _make_test_run(
        "node --test",
        counts["pass"] - files,
        counts["fail"] + counts["cancelled"],
        lines,
        failing,
        counts["skipped"] + counts["todo"],
    )


_TAP_FAILING = r"\s*not ok [0-9]+ (?:- )?(.+?)(?: # .*)?$"


def _parse_tape(lines: list[str]) -> TestRun | None:
    """Parse the output of tape: `# tests 5`, `# pass  5` and, if any, `# fail  1`.

    It counts assertions.
    """
    counts = _count_by_word(lines, r"# (?P<word>pass(?=  )|tests|fail) +(?P<number>[0-9]{1,8})$")
    has_summary = "tests" in counts and "pass" in counts
    if has_summary:
        return _make_test_run("tape", counts["pass"], counts["fail"], lines, _TAP_FAILING)
    return None


def _parse_bun(lines: list[str]) -> TestRun | None:
    if not _match_lines(lines, r"Ran [0-9]{1,8} tests? across [0-9]{1,8} files?\. \["):
        return None

    counts = _count_by_word(lines, r"\s+(?P<number>[0-9]{1,8}) (?P<word>pass|fail|errors?)$")
    # A file that cannot be loaded is counted as a failure and as an error
    failed = max(counts["fail"], counts["error"] + counts["errors"])
    return _make_test_run(
        "bun test", counts["pass"], failed, lines, r"\(fail\) (.+?)(?: \[[0-9.]+[a-z]+\])?$"
    )


def _parse_ava(lines: list[str]) -> TestRun | None:
    """Parse the summary of AVA; an uncaught exception counts as a failure."""
    counts = _count_by_word(
        lines, r"\s*(?P<number>[0-9]{1,8}) (?:tests? (?P<word>passed|failed)|uncaught exceptions?)$"
    )
    failing = r"\s*✘ (?:\[fail\]: )?(.+?)(?: Error thrown.*)?$"
    has_summary = "passed" in counts or "failed" in counts
    if has_summary:
        return _make_test_run(
            "ava", counts["passed"], counts["failed"] + counts[""], lines, failing
        )

    return None


def _parse_uvu(lines: list[str]) -> TestRun | None:
    counts = _count_by_word(lines, r"\s*(?P<word>Total|Passed|Skipped): +(?P<number>[0-9]{1,8})$")
    if set(counts) != {"Total", "Passed", "Skipped"}:
        return None
    failed = max(counts["Total"] - counts["Passed"] - counts["Skipped"], 0)
    return _make_test_run("uvu", counts["Passed"], failed, lines, r"\s*FAIL +(.+)$")


def _parse_automake(lines: list[str]) -> TestRun | None:
    """Parse the output of automake's `make check`, which has one summary per test folder."""
    counts = _count_by_word(
        lines, r"# (?P<word>TOTAL|PASS|XFAIL|FAIL|XPASS|ERROR): +(?P<number>[0-9]{1,8})$"
    )
    if "TOTAL" not in counts:
        return None

    failed = counts["FAIL"] + counts["XPASS"] + counts["ERROR"]
    return _make_test_run(
        "automake",
        counts["PASS"] + counts["XFAIL"],
        failed,
        lines,
        r"(?:FAIL|XPASS|ERROR): (\S.*)$",
    )


_PARSERS: tuple[OutputParser, ...] = (
    _parse_pytest,
    _parse_unittest,
    _make_numbered_parser(
        "cargo test",
        r"test result: (?:ok|FAILED)\. (?P<passed>[0-9]{1,8}) passed; (?P<failed>[0-9]{1,8})"
        r" failed;(?: (?P<skipped>[0-9]{1,8}) ignored)?",
        r"test (.+?) \.\.\. FAILED$",
    ),
    _make_numbered_parser(
        "cargo nextest",
        r"\s*Summary \[[^\]]*\] +(?P<total>[0-9]{1,8}) tests? run: (?P<passed>[0-9]{1,8}) passed",
        r"\s*(?:FAIL|TIMEOUT|SIG[A-Z]+) \[[^\]]*\] +(.+)$",
        last=True,
    ),
    _parse_go,
    _parse_go_json,
    _make_worded_parser(
        "jest",
        r"Tests: +([0-9a-z, ]*) total$",
        r"Test Suites: +([0-9]{1,8}) failed",
        r"\s*● (.+ › .+)$",
    ),
    _make_worded_parser(
        "vitest",
        r"\s*Tests +((?:[0-9]+ [a-z]+(?: \| )?)+) \([0-9]+\)$",
        r"\s*Test Files +([0-9]{1,8}) failed",
        r"\s*FAIL +(.+)$",
    ),
    *(_parse_mocha, _parse_node, _parse_tape),
    _make_numbered_parser(
        "tap",
        r"\s*# \{ total: [0-9]{1,8}(?:, pass: (?P<passed>[0-9]{1,8}))?(?:, fail:"
        r" (?P<failed>[0-9]{1,8}))?",
        _TAP_FAILING,
    ),
    *(_parse_bun, _parse_ava, _parse_uvu),
    _make_numbered_parser(
        "ctest",
        r"[0-9]{1,3}% tests passed, (?P<failed>[0-9]{1,8}) tests? failed out of"
        r" (?P<total>[0-9]{1,8})$",
        r"\s+[0-9]+ - (\S+) \(",
    ),
    _parse_automake,
    # Maven: the last line of each module is its summary, without a time.
    _make_numbered_parser(
        "surefire",
        r"\[(?:INFO|ERROR|WARNING)\] Tests run: (?P<total>[0-9]+), Failures: (?P<failed>[0-9]+),"
        r" Errors: (?P<errors>[0-9]+), Skipped: (?P<skipped>[0-9]+)$",
        r"\[ERROR\] (\S+) -- Time elapsed.*<<< (?:FAILURE|ERROR)!$|\[ERROR\]   (\S+?):[0-9]+",
    ),
)
