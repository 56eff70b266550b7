"""What a test runner says about its run: how many tests it carried out, and which failed.

Read from the text it prints, in the runner's own exact form. A runner says it once, at its end, or once a
part: `last` and `all` below. Skipped tests have not been carried out.
"""

from __future__ import annotations

import re
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


def _counts(text: str) -> dict[str, int]:
    """`2 failed, 1 passed` as numbers by word."""
    counts: dict[str, int] = {}
    for number, word in re.findall(r"\b([0-9]{1,8}) ([a-z]+)", text):
        counts[word] = counts.get(word, 0) + int(number)
    return counts


def _sum(counts: dict[str, int], *words: str) -> int:
    return sum(counts.get(word, 0) for word in words)


def _names(lines: Iterable[str], pattern: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys((found[found.lastindex or 0]).strip() for line in lines if (found := pattern.match(line)))
    )


_PYTEST_END = re.compile(
    r"=*(?: )?((?:no tests ran|[0-9]+ [a-z]+)(?:, [0-9]+ [a-z]+)*) in [0-9.]+s(?: \([0-9:]+\))?(?: =*)?$"
)
_PYTEST_FAILING = re.compile(r"(?:FAILED|ERROR) ([^ ].*?)(?: - .*)?$")


def _pytest(lines: list[str]) -> TestRun | None:
    ends = [found for line in lines if (found := _PYTEST_END.match(line))]
    if not ends:
        return None
    counts = _counts(ends[-1][1])
    failing = _names(lines, _PYTEST_FAILING)
    return TestRun(
        "pytest", _sum(counts, "passed", "xfailed", "xpassed"), _sum(counts, "failed", "error", "errors"), failing
    )


_UNITTEST_RAN = re.compile(r"Ran ([0-9]{1,8}) tests? in [0-9.]+s$")
_UNITTEST_END = re.compile(r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
_UNITTEST_FAILING = re.compile(r"(?:FAIL|ERROR): (.+)$")


def _unittest(lines: list[str]) -> TestRun | None:
    at = max((n for n, line in enumerate(lines) if _UNITTEST_RAN.match(line)), default=None)
    if at is None:
        return None
    ran = _UNITTEST_RAN.match(lines[at])
    end = next((found for line in lines[at + 1 :] if (found := _UNITTEST_END.match(line))), None)
    if ran is None or end is None:  # it broke off before it could judge itself
        return None
    details = {name.strip(): int(number) for name, number in re.findall(r"([a-z ]+)=([0-9]{1,8})", end[1] or "")}
    failed = _sum(details, "failures", "errors", "unexpected successes")
    skipped = details.get("skipped", 0)
    return TestRun("unittest", max(int(ran[1]) - failed - skipped, 0), failed, _names(lines, _UNITTEST_FAILING))


_CARGO_END = re.compile(r"test result: (?:ok|FAILED)\. ([0-9]{1,8}) passed; ([0-9]{1,8}) failed;")
_CARGO_FAILING = re.compile(r"test (.+?) \.\.\. FAILED$")
_NEXTEST_END = re.compile(r"\s*Summary \[[^\]]*\] +([0-9]{1,8}) tests? run: ([0-9]{1,8}) passed")
_NEXTEST_FAILING = re.compile(r"\s*(?:FAIL|TIMEOUT|SIG[A-Z]+) \[[^\]]*\] +(.+)$")


def _cargo(lines: list[str]) -> TestRun | None:
    ends = [(int(found[1]), int(found[2])) for line in lines if (found := _CARGO_END.match(line))]
    if not ends:
        return None
    return TestRun("cargo test", sum(p for p, _ in ends), sum(f for _, f in ends), _names(lines, _CARGO_FAILING))


def _nextest(lines: list[str]) -> TestRun | None:
    ends = [(int(found[1]), int(found[2])) for line in lines if (found := _NEXTEST_END.match(line))]
    if not ends:
        return None
    ran, passed = ends[-1]
    return TestRun("cargo nextest", passed, max(ran - passed, 0), _names(lines, _NEXTEST_FAILING))


_GO_TEST = re.compile(r"\s*--- (PASS|FAIL): (\S+)")
_GO_PACKAGE = re.compile(r"(ok|FAIL)\s+(\S+)\s+(?:[0-9.]+s|\(cached\)|\[build failed\]|\[setup failed\])(.*)$")


def _go(lines: list[str]) -> TestRun | None:
    """`go test -v` names each test. Without -v there is a line a package, which then stands for one test."""
    packages = [found for line in lines if (found := _GO_PACKAGE.match(line)) and "no tests to run" not in found[3]]
    if not packages:
        return None
    tests = [found for line in lines if (found := _GO_TEST.match(line))]
    failed_packages = [found[2] for found in packages if found[1] == "FAIL"]
    failing = tuple(dict.fromkeys(found[2] for found in tests if found[1] == "FAIL")) or tuple(failed_packages)
    passed = sum(found[1] == "PASS" for found in tests) or sum(found[1] == "ok" for found in packages)
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


_JEST_END = re.compile(r"Tests: +([0-9a-z, ]*) total$")
_JEST_FAILING = re.compile(r"\s*● (.+ › .+)$")
_JEST_BROKEN = re.compile(r"Test Suites: +([0-9]{1,8}) failed")


def _jest(lines: list[str]) -> TestRun | None:
    ends = [_counts(found[1]) for line in lines if (found := _JEST_END.match(line))]
    if not ends:
        return None
    # A suite that cannot be loaded has no tests that could fail.
    broken = sum(int(found[1]) for line in lines if (found := _JEST_BROKEN.match(line)))
    failed = sum(_sum(counts, "failed") for counts in ends) or broken
    return TestRun("jest", sum(_sum(counts, "passed") for counts in ends), failed, _names(lines, _JEST_FAILING))


_VITEST_END = re.compile(r"\s*Tests +((?:[0-9]+ [a-z]+(?: \| )?)+) \([0-9]+\)$")
_VITEST_BROKEN = re.compile(r"\s*Test Files +([0-9]{1,8}) failed")
_VITEST_FAILING = re.compile(r"\s*FAIL +(.+)$")


def _vitest(lines: list[str]) -> TestRun | None:
    ends = [_counts(found[1]) for line in lines if (found := _VITEST_END.match(line))]
    if not ends:
        return None
    broken = sum(int(found[1]) for line in lines if (found := _VITEST_BROKEN.match(line)))
    failed = sum(_sum(counts, "failed") for counts in ends) or broken
    return TestRun("vitest", sum(_sum(counts, "passed") for counts in ends), failed, _names(lines, _VITEST_FAILING))


_MOCHA_PASSING = re.compile(r"\s+([0-9]{1,8}) passing \([0-9.]+[a-z]+\)$")
_MOCHA_FAILING = re.compile(r"\s+([0-9]{1,8}) failing$")
_MOCHA_NAME = re.compile(r"\s+[0-9]+\) (.+)$")


def _mocha(lines: list[str]) -> TestRun | None:
    passing = [(number, int(found[1])) for number, line in enumerate(lines) if (found := _MOCHA_PASSING.match(line))]
    if not passing:
        return None
    failed = sum(int(found[1]) for line in lines if (found := _MOCHA_FAILING.match(line)))
    failing = _names(lines[: passing[-1][0]], _MOCHA_NAME) if failed else ()  # after that they come again, with details
    return TestRun("mocha", sum(number for _, number in passing), failed, failing)


_NODE_COUNT = re.compile(r"(?:#|ℹ) (pass|fail|cancelled) ([0-9]{1,8})$")
_NODE_FAILING = re.compile(r"\s*(?:not ok [0-9]+ - (.+)|✖ (.+) \([0-9.]+ms\))$")
_NODE_FILE = re.compile(r"(?:ok [0-9]+ - |✔ )/.{1,1000}\.[cm]?[jt]sx?(?: \([0-9.]+ms\))?$")


def _node(lines: list[str]) -> TestRun | None:
    counts = [(found[1], int(found[2])) for line in lines if (found := _NODE_COUNT.match(line))]
    if not any(word == "pass" for word, _ in counts):
        return None
    failed = sum(number for word, number in counts if word != "pass")
    failing = _names(lines, _NODE_FAILING) if failed else ()
    files = sum(_NODE_FILE.match(line) is not None for line in lines)  # one without a test counts itself as one
    passed = sum(number for word, number in counts if word == "pass")
    return TestRun("node --test", max(passed - files, 0), failed, failing)


_TAPE_COUNT = re.compile(r"# (tests|pass|fail)  +([0-9]{1,8})$|# (tests|fail) ([0-9]{1,8})$")
_TAP_TOTAL = re.compile(r"\s*# \{ total: ([0-9]{1,8})(?:, pass: ([0-9]{1,8}))?(?:, fail: ([0-9]{1,8}))?")
_TAP_FAILING = re.compile(r"\s*not ok [0-9]+ (?:- )?(.+?)(?: # .*)?$")


def _tape(lines: list[str]) -> TestRun | None:
    """Tape says `# tests 5`, `# pass  5` and, if any, `# fail  1`: what it counts are assertions."""
    found = [match for line in lines if (match := _TAPE_COUNT.match(line))]
    counts = [(match[1] or match[3], int(match[2] or match[4])) for match in found]
    if not any(word == "tests" for word, _ in counts) or not any(
        word == "pass" and match[1] for (word, _), match in zip(counts, found, strict=True)
    ):
        return None
    failed = sum(number for word, number in counts if word == "fail")
    passed = sum(number for word, number in counts if word == "pass")
    return TestRun("tape", passed, failed, _names(lines, _TAP_FAILING) if failed else ())


def _tap(lines: list[str]) -> TestRun | None:
    ends = [found for line in lines if (found := _TAP_TOTAL.match(line))]
    if not ends:
        return None
    failed = sum(int(found[3] or 0) for found in ends)
    return TestRun(
        "tap", sum(int(found[2] or 0) for found in ends), failed, _names(lines, _TAP_FAILING) if failed else ()
    )


_AVA = re.compile(r"\s*(?:([0-9]{1,8}) tests? (passed|failed)|([0-9]{1,8}) uncaught exceptions?)$")
_AVA_FAILING = re.compile(r"\s*✘ (?:\[fail\]: )?(.+?)(?: Error thrown.*)?$")


def _ava(lines: list[str]) -> TestRun | None:
    found = [match for line in lines if (match := _AVA.match(line))]
    if not any(match[1] for match in found):
        return None
    passed = sum(int(match[1]) for match in found if match[2] == "passed")
    failed = sum(int(match[1] or match[3]) for match in found if match[2] != "passed")
    return TestRun("ava", passed, failed, _names(lines, _AVA_FAILING) if failed else ())


_UVU = re.compile(r"\s*(Total|Passed|Skipped): +([0-9]{1,8})$")
_UVU_FAILING = re.compile(r"\s*FAIL +(.+)$")


def _uvu(lines: list[str]) -> TestRun | None:
    counts = {match[1]: int(match[2]) for line in lines if (match := _UVU.match(line))}
    if set(counts) != {"Total", "Passed", "Skipped"}:
        return None
    failed = max(counts["Total"] - counts["Passed"] - counts["Skipped"], 0)
    return TestRun("uvu", counts["Passed"], failed, _names(lines, _UVU_FAILING) if failed else ())


_CTEST = re.compile(r"[0-9]{1,3}% tests passed, ([0-9]{1,8}) tests? failed out of ([0-9]{1,8})$")
_CTEST_FAILING = re.compile(r"\s+[0-9]+ - (\S+) \(")


def _ctest(lines: list[str]) -> TestRun | None:
    found = [match for line in lines if (match := _CTEST.match(line))]
    if not found:
        return None
    failed = sum(int(match[1]) for match in found)
    total = sum(int(match[2]) for match in found)
    return TestRun("ctest", total - failed, failed, _names(lines, _CTEST_FAILING) if failed else ())


_SUREFIRE = re.compile(
    r"\[(?:INFO|ERROR|WARNING)\] Tests run: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+), Skipped: ([0-9]+)$"
)
_SUREFIRE_FAILING = re.compile(r"\[ERROR\] (\S+) -- Time elapsed.*<<< (?:FAILURE|ERROR)!$|\[ERROR\]   (\S+?):[0-9]+")


def _surefire(lines: list[str]) -> TestRun | None:
    """Maven: the last line of a module sums it up, without a time."""
    found = [[*map(int, match.groups())] for line in lines if (match := _SUREFIRE.match(line))]
    if not found:
        return None
    failed = sum(one[1] + one[2] for one in found)
    passed = sum(one[0] - one[1] - one[2] - one[3] for one in found)
    return TestRun("surefire", passed, failed, _names(lines, _SUREFIRE_FAILING) if failed else ())


_AUTOMAKE = re.compile(r"# (TOTAL|PASS|XFAIL|FAIL|XPASS|ERROR): +([0-9]{1,8})$")
_AUTOMAKE_FAILING = re.compile(r"(?:FAIL|XPASS|ERROR): (\S.*)$")


def _automake(lines: list[str]) -> TestRun | None:
    """`make check` sums up each folder of tests."""
    counts = [(found[1], int(found[2])) for line in lines if (found := _AUTOMAKE.match(line))]
    if not any(word == "TOTAL" for word, _ in counts):
        return None
    passed = sum(number for word, number in counts if word in ("PASS", "XFAIL"))
    failed = sum(number for word, number in counts if word in ("FAIL", "XPASS", "ERROR"))
    return TestRun("automake", passed, failed, _names(lines, _AUTOMAKE_FAILING) if failed else ())


_READERS: tuple[Callable[[list[str]], TestRun | None], ...] = (
    *(_pytest, _unittest, _cargo, _nextest, _go, _go_json),
    *(_jest, _vitest, _mocha, _node, _tape, _tap, _ava, _uvu),
    *(_ctest, _automake, _surefire),
)
