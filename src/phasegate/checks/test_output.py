"""What a test runner says about its run: how many tests it carried out, and which failed.

Read from the text it prints, in the runner's own exact form. A runner says it once, at its end, or once a
part: `last` and `all` below. Skipped tests have not been carried out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from phasegate.typed import read_json

MOST_FAILING = 2_000
LONGEST_LINE = 2_000
LOOK_AT = 1_000_000  # characters at each end


class TestRun(msgspec.Struct, frozen=True):
    """What was carried out. `failing` are names in the runner's words, as many as it gave."""

    __test__ = False  # not a test, whatever pytest thinks of its name

    runner: str
    passed: int
    failed: int
    failing: tuple[str, ...] = ()

    @property
    def executed(self) -> int:
        return self.passed + self.failed


def read_test_output(output: str) -> TestRun | None:
    """What the runners in this output said, added up; None if none that we know spoke: that is no proof of a run."""
    if len(output) > 2 * LOOK_AT:  # a flood: summaries stand at the end
        output = f"{output[:LOOK_AT]}\n{output[-LOOK_AT:]}"
    lines = [_uncoloured(line) for line in output.replace("\r\n", "\n").split("\n")]
    found = [run for read in _READERS if (run := read(lines)) is not None]
    if not found:
        return None
    return TestRun(
        runner=", ".join(run.runner for run in found),
        passed=sum(run.passed for run in found),
        failed=sum(run.failed for run in found),
        failing=tuple(dict.fromkeys(name for run in found for name in run.failing))[:MOST_FAILING],
    )


_COLOUR = re.compile(r"\x1b\[[0-9;]{0,30}m")


def _uncoloured(line: str) -> str:
    return _COLOUR.sub("", line[:LONGEST_LINE])


Reader = Callable[[list[str]], TestRun | None]


def _found(lines: Iterable[str], pattern: str) -> list[re.Match[str]]:
    form = re.compile(pattern)
    return [match for line in lines if (match := form.match(line))]


def _names(lines: Iterable[str], pattern: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[match.lastindex or 0].strip() for match in _found(lines, pattern)))


def _by_word(lines: Iterable[str], pattern: str) -> Counter[str]:
    """What lines with a `word` and a `number` come to, by word."""
    counts: Counter[str] = Counter()
    for match in _found(lines, pattern):
        counts[match["word"] or ""] += int(match["number"])
    return counts


def _in_words(text: str) -> Counter[str]:
    """`2 failed, 1 passed` as numbers by word."""
    counts: Counter[str] = Counter()
    for number, word in re.findall(r"\b([0-9]{1,8}) ([a-z]+)", text):
        counts[word] += int(number)
    return counts


def _run(runner: str, passed: int, failed: int, lines: Iterable[str], failing: str) -> TestRun:
    return TestRun(runner, max(passed, 0), failed, _names(lines, failing) if failed else ())


def _numbered(runner: str, end: str, failing: str, *, last: bool = False) -> Reader:
    """A runner whose end states numbers: groups `passed`, `failed`, `errors`, `skipped`, or `total` for the rest."""

    def read(lines: list[str]) -> TestRun | None:
        ends = _found(lines, end)
        if not ends:
            return None
        counts: Counter[str] = Counter()
        for match in ends[-1:] if last else ends:
            counts.update({name: int(number) for name, number in match.groupdict("0").items()})
        failed = counts["failed"] + counts["errors"] if "failed" in counts else counts["total"] - counts["passed"]
        passed = counts["passed"] if "passed" in counts else counts["total"] - failed - counts["skipped"]
        return _run(runner, passed, max(failed, 0), lines, failing)

    return read


def _worded(runner: str, end: str, broken: str, failing: str) -> Reader:
    """A runner whose end says `2 failed, 1 passed`. A file that cannot be loaded has no tests that could fail."""

    def read(lines: list[str]) -> TestRun | None:
        ends = _found(lines, end)
        if not ends:
            return None
        counts = sum((_in_words(match[1]) for match in ends), Counter[str]())
        files = sum(int(match[1]) for match in _found(lines, broken))
        return _run(runner, counts["passed"], counts["failed"] or files, lines, failing)

    return read


def _pytest(lines: list[str]) -> TestRun | None:
    ends = _found(
        lines, r"=*(?: )?((?:no tests ran|[0-9]+ [a-z]+)(?:, [0-9]+ [a-z]+)*) in [0-9.]+s(?: \([0-9:]+\))?(?: =*)?$"
    )
    if not ends:
        return None
    counts = _in_words(ends[-1][1])
    passed = counts["passed"] + counts["xfailed"] + counts["xpassed"]
    failed = counts["failed"] + counts["error"] + counts["errors"]
    return _run("pytest", passed, failed, lines, r"(?:FAILED|ERROR) ([^ ].*?)(?: - .*)?$")


def _unittest(lines: list[str]) -> TestRun | None:
    ran = _found(lines, r"Ran ([0-9]{1,8}) tests? in [0-9.]+s$")
    if not ran:
        return None
    behind = lines[len(lines) - lines[::-1].index(ran[-1][0]) :]
    ends = _found(behind, r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
    if not ends:  # it broke off before it could judge itself
        return None
    details = Counter({name.strip(): int(n) for name, n in re.findall(r"([a-z ]+)=([0-9]{1,8})", ends[0][1] or "")})
    failed = details["failures"] + details["errors"] + details["unexpected successes"]
    return _run("unittest", int(ran[-1][1]) - failed - details["skipped"], failed, lines, r"(?:FAIL|ERROR): (.+)$")


def _go(lines: list[str]) -> TestRun | None:
    """`go test -v` names each test. Without -v there is a line a package, which then stands for one test."""
    ended = _found(lines, r"(ok|FAIL)\s+(\S+)\s+(?:[0-9.]+s|\(cached\)|\[build failed\]|\[setup failed\])(.*)$")
    packages = [match for match in ended if "no tests to run" not in match[3]]
    if not packages:
        return None
    tests = _found(lines, r"\s*--- (PASS|FAIL): (\S+)")
    failed_packages = [match[2] for match in packages if match[1] == "FAIL"]
    failing = tuple(dict.fromkeys(match[2] for match in tests if match[1] == "FAIL")) or tuple(failed_packages)
    passed = sum(match[1] == "PASS" for match in tests) or sum(match[1] == "ok" for match in packages)
    return TestRun("go test", passed, len(failing), failing)


class _GoEvent(msgspec.Struct):
    Action: str
    Package: str = ""
    Test: str = ""


def _go_json(lines: list[str]) -> TestRun | None:
    events = [event for line in lines if line.startswith('{"') and '"Action"' in line and (event := _go_event(line))]
    ends = [event for event in events if event.Action in ("pass", "fail")]
    if not ends:
        return None
    failing = tuple(f"{event.Package}.{event.Test}" for event in ends if event.Action == "fail" and event.Test)
    broken = tuple(event.Package for event in ends if event.Action == "fail" and not event.Test)
    passed = sum(event.Action == "pass" and bool(event.Test) for event in ends)
    return TestRun("go test -json", passed, len(failing or broken), failing or broken)


def _go_event(line: str) -> _GoEvent | None:
    try:
        return read_json(line, _GoEvent)
    except msgspec.DecodeError:
        return None


def _mocha(lines: list[str]) -> TestRun | None:
    at = [number for number, line in enumerate(lines) if _found([line], _MOCHA_PASSING)]
    if not at:
        return None
    passed = sum(int(match[1]) for match in _found(lines, _MOCHA_PASSING))
    failed = sum(int(match[1]) for match in _found(lines, r"\s+([0-9]{1,8}) failing$"))
    named = lines[: at[-1]]  # after that they come again, with details
    return _run("mocha", passed, failed, named, r"\s+[0-9]+\) (.+)$")


_MOCHA_PASSING = r"\s+([0-9]{1,8}) passing \([0-9.]+[a-z]+\)$"


def _node(lines: list[str]) -> TestRun | None:
    counts = _by_word(lines, r"(?:#|ℹ) (?P<word>pass|fail|cancelled) (?P<number>[0-9]{1,8})$")
    if "pass" not in counts:
        return None
    # A file without a test counts itself as one.
    files = len(_found(lines, r"(?:ok [0-9]+ - |✔ )/.{1,1000}\.[cm]?[jt]sx?(?: \([0-9.]+ms\))?$"))
    failing = r"\s*(?:not ok [0-9]+ - (.+)|✖ (.+) \([0-9.]+ms\))$"
    return _run("node --test", counts["pass"] - files, counts["fail"] + counts["cancelled"], lines, failing)


_TAP_FAILING = r"\s*not ok [0-9]+ (?:- )?(.+?)(?: # .*)?$"


def _tape(lines: list[str]) -> TestRun | None:
    """Tape says `# tests 5`, `# pass  5` and, if any, `# fail  1`: what it counts are assertions."""
    counts = _by_word(lines, r"# (?P<word>pass(?=  )|tests|fail) +(?P<number>[0-9]{1,8})$")
    is_told = "tests" in counts and "pass" in counts
    return _run("tape", counts["pass"], counts["fail"], lines, _TAP_FAILING) if is_told else None


def _bun(lines: list[str]) -> TestRun | None:
    if not _found(lines, r"Ran [0-9]{1,8} tests? across [0-9]{1,8} files?\. \["):
        return None
    counts = _by_word(lines, r"\s+(?P<number>[0-9]{1,8}) (?P<word>pass|fail|errors?)$")
    failed = max(counts["fail"], counts["error"] + counts["errors"])  # a file that cannot be loaded is both
    return _run("bun test", counts["pass"], failed, lines, r"\(fail\) (.+?)(?: \[[0-9.]+[a-z]+\])?$")


def _ava(lines: list[str]) -> TestRun | None:
    counts = _by_word(lines, r"\s*(?P<number>[0-9]{1,8}) (?:tests? (?P<word>passed|failed)|uncaught exceptions?)$")
    failing = r"\s*✘ (?:\[fail\]: )?(.+?)(?: Error thrown.*)?$"
    is_told = "passed" in counts or "failed" in counts
    return _run("ava", counts["passed"], counts["failed"] + counts[""], lines, failing) if is_told else None


def _uvu(lines: list[str]) -> TestRun | None:
    counts = _by_word(lines, r"\s*(?P<word>Total|Passed|Skipped): +(?P<number>[0-9]{1,8})$")
    if set(counts) != {"Total", "Passed", "Skipped"}:
        return None
    failed = max(counts["Total"] - counts["Passed"] - counts["Skipped"], 0)
    return _run("uvu", counts["Passed"], failed, lines, r"\s*FAIL +(.+)$")


def _automake(lines: list[str]) -> TestRun | None:
    """`make check` sums up each folder of tests."""
    counts = _by_word(lines, r"# (?P<word>TOTAL|PASS|XFAIL|FAIL|XPASS|ERROR): +(?P<number>[0-9]{1,8})$")
    if "TOTAL" not in counts:
        return None
    failed = counts["FAIL"] + counts["XPASS"] + counts["ERROR"]
    return _run("automake", counts["PASS"] + counts["XFAIL"], failed, lines, r"(?:FAIL|XPASS|ERROR): (\S.*)$")


_READERS: tuple[Reader, ...] = (
    _pytest,
    _unittest,
    _numbered(
        "cargo test",
        r"test result: (?:ok|FAILED)\. (?P<passed>[0-9]{1,8}) passed; (?P<failed>[0-9]{1,8}) failed;",
        r"test (.+?) \.\.\. FAILED$",
    ),
    _numbered(
        "cargo nextest",
        r"\s*Summary \[[^\]]*\] +(?P<total>[0-9]{1,8}) tests? run: (?P<passed>[0-9]{1,8}) passed",
        r"\s*(?:FAIL|TIMEOUT|SIG[A-Z]+) \[[^\]]*\] +(.+)$",
        last=True,
    ),
    _go,
    _go_json,
    _worded("jest", r"Tests: +([0-9a-z, ]*) total$", r"Test Suites: +([0-9]{1,8}) failed", r"\s*● (.+ › .+)$"),
    _worded(
        "vitest",
        r"\s*Tests +((?:[0-9]+ [a-z]+(?: \| )?)+) \([0-9]+\)$",
        r"\s*Test Files +([0-9]{1,8}) failed",
        r"\s*FAIL +(.+)$",
    ),
    *(_mocha, _node, _tape),
    _numbered(
        "tap",
        r"\s*# \{ total: [0-9]{1,8}(?:, pass: (?P<passed>[0-9]{1,8}))?(?:, fail: (?P<failed>[0-9]{1,8}))?",
        _TAP_FAILING,
    ),
    *(_bun, _ava, _uvu),
    _numbered(
        "ctest",
        r"[0-9]{1,3}% tests passed, (?P<failed>[0-9]{1,8}) tests? failed out of (?P<total>[0-9]{1,8})$",
        r"\s+[0-9]+ - (\S+) \(",
    ),
    _automake,
    # Maven: the last line of a module sums it up, without a time.
    _numbered(
        "surefire",
        r"\[(?:INFO|ERROR|WARNING)\] Tests run: (?P<total>[0-9]+), Failures: (?P<failed>[0-9]+),"
        r" Errors: (?P<errors>[0-9]+), Skipped: (?P<skipped>[0-9]+)$",
        r"\[ERROR\] (\S+) -- Time elapsed.*<<< (?:FAILURE|ERROR)!$|\[ERROR\]   (\S+?):[0-9]+",
    ),
)
