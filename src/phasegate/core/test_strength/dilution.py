"""Find signs of weakened tests in a change: removed assertions, skips, mocks, changed runners."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phasegate.core.test_strength.blocks import TestBlock, split_tests
from phasegate.core.test_strength.compare import ChangedText
from phasegate.core.test_strength.model import Severity, StrengthFinding
from phasegate.core.test_strength.paths import (
    is_mixed_config,
    is_runner_config,
    is_snapshot,
    is_test_path,
)

MAX_LINES = 20_000
MAX_SIGNS = 60


class Sign(NamedTuple):
    """A pattern in an added line, and what it means."""

    kind: str
    severity: Severity
    pattern: re.Pattern[str]
    text: str


def _sign(kind: str, severity: Severity, text: str, pattern: str) -> Sign:
    return Sign(kind, severity, re.compile(pattern), text)


# In every changed file
_EVERYWHERE = (
    _sign(
        "recognises its runner",
        Severity.REJECT,
        "the code looks for the test run that it is in",
        r"PYTEST_CURRENT_TEST|PHASEGATE_|phasegate_(?:pytest|unittest|node|reporting)"
        r"|JEST_WORKER_ID|VITEST(?:_WORKER_ID)?\b|NODE_TEST_CONTEXT"
        r"|['\"](?:pytest|unittest|_pytest)['\"] (?:not )?in sys\.modules"
        r"|sys\.modules\.get\(['\"](?:pytest|unittest)"
        r"|(?:getenv|environ(?:\.get)?)[(\[]\s*['\"]CI['\"]|process\.env\.CI\b"
        r"|inspect\.stack\(\)|sys\._getframe\(",
    ),
    _sign(
        "ends the test run",
        Severity.REJECT,
        "the code ends the process or changes its exit status",
        r"\bos\._exit\s*\(|\bos\.(?:abort|kill)\s*\(|atexit\.register\([^)]*exit"
        r"|process\.(?:reallyExit|abort)\s*\(|process\.exitCode\s*=\s*0|process\.on\(\s*['\"]exit",
    ),
    _sign(
        "writes a coverage report",
        Severity.REJECT,
        "the code names a coverage report, which only the coverage tool should write",
        r"['\"/](?:coverage\.(?:json|xml|lcov|out)|lcov\.info|cobertura(?:-coverage)?\.xml"
        r"|coverage-summary\.json)['\"]",
    ),
    _sign(
        "replaces assertions",
        Severity.REJECT,
        "the code replaces what a test runner uses to report failures",
        r"\bAssertionError\s*=|\b(?:TestCase|unittest\.\w+)\.(?:assert|fail|run)\w*\s*="
        r"|\bpytest\.(?:raises|fail|approx)\s*=|builtins\.\w+\s*=|setattr\(\s*(?:builtins|unittest)"
        r"|\bassert\.\w+\s*=[^=]|\bglobal(?:This)?\.(?:expect|assert|it|test|describe)\s*=[^=]"
        r"|\.outcome\s*=\s*['\"]passed|force_result|exitstatus\s*=",
    ),
)
# In test code and its configuration
_IN_TESTS = (
    _sign(
        "ends the test run",
        Severity.REJECT,
        "a test file ends the process",
        r"\b(?:sys\.exit|pytest\.exit|process\.exit)\s*\(|^\s*(?:quit|exit)\s*\(",
    ),
    _sign(
        "changes the test run",
        Severity.REJECT,
        "a hook can drop tests or change their results",
        r"\bdef pytest_(?:runtest_makereport|runtest_call|runtest_protocol|pyfunc_call"
        r"|collection_modifyitems|ignore_collect|collect_file|pycollect_makeitem|deselected"
        r"|sessionfinish|report_teststatus|unconfigure)\b|^\s*collect_ignore(?:_glob)?\s*="
        r"|hookwrapper\s*=|\bload_tests\s*\(|__test__\s*=\s*False",
    ),
    _sign(
        "skips a test",
        Severity.ASK,
        "a test is skipped or expected to fail",
        r"@(?:pytest\.mark|unittest)\.(?:skip|skipif|skipIf|skipUnless|xfail|expectedFailure)\b"
        r"|\bpytest\.(?:skip|xfail|importorskip)\s*\(|\.skipTest\(|pytestmark\s*=.*\bskip"
        r"|\b(?:it|test|describe|context|suite)\.(?:skip|todo|failing|fails)\b"
        r"|^\s*x(?:it|test|describe)\(|\bt\.Skip(?:f|Now)?\(|#\[ignore\]|@(?:Disabled|Ignore)\b"
        r"|\bskip:\s*true",
    ),
    _sign(
        "runs only some tests",
        Severity.REJECT,
        "only the marked tests are run",
        r"\b(?:it|test|describe|context|suite)\.only\b|^\s*f(?:it|describe)\(|\bonly:\s*true",
    ),
    _sign(
        "swallows failures",
        Severity.ASK,
        "a failed assertion has no effect",
        r"except(?:\s*\(?\s*(?:AssertionError|BaseException|Exception)[^:]*)?:\s*(?:pass|return|\.\.\.)?\s*$"
        r"|contextlib\.suppress\(|catch\s*(?:\([^)]*\))?\s*\{\s*\}",
    ),
)
# In files that configure a test runner, a build or CI
_IN_CONFIG = (
    _sign(
        "changes which tests run",
        Severity.REJECT,
        "the configuration selects tests",
        r"^\s*[\"']?(?:addopts|testpaths|python_files|python_classes|python_functions|norecursedirs"
        r"|collect_ignore|testMatch|testRegex|testPathIgnorePatterns|modulePathIgnorePatterns"
        r"|testNamePattern|passWithNoTests|exclude|include|spec|ignore|grep|bail|roots"
        r"|projects)[\"']?\s*[:=]",
    ),
    _sign(
        "changes the test command",
        Severity.REJECT,
        "the test command is not the one of the base",
        r"^\s*[\"'](?:pre|post)?test(?::\w+)?[\"']\s*:|^\s*\.?(?:test|check)s?\s*:(?!=)"
        r"|\|\|\s*(?:true|:|exit 0)|--passWithNoTests"
        r"|(?:continue-on-error|allow_failure):\s*true"
        r"|;\s*(?:true|exit 0)\s*[\"']?,?\s*$",
    ),
    _sign(
        "changes coverage",
        Severity.REJECT,
        "the configuration of coverage was changed",
        r"\b(?:fail_under|cov-fail-under|coverageThreshold|branches|functions|lines|statements|omit"
        r"|exclude_lines|exclude_also|collectCoverageFrom|check-coverage|threshold)\b[\"']?\s*[:=]"
        r"|pragma: no cover",
    ),
)
_CI = re.compile(
    r"^\.github/workflows/|^\.gitlab-ci\.yml$|^\.circleci/|^azure-pipelines\.yml$|^\.travis\.yml$"
    r"|(?:^|/)Jenkinsfile$|^\.buildkite/|^\.drone\.yml$|^\.(?:forgejo|gitea)/workflows/"
)


def find_signs(
    changed: Sequence[ChangedText], patterns: tuple[str, ...] = (), allowed: Iterable[str] = ()
) -> list[StrengthFinding]:
    """Return the signs of weakened tests in a change.

    `allowed` are paths whose change the user has approved.
    """
    approved = {*allowed}
    findings: list[StrengthFinding] = []
    targets = [one.path for one in changed if not is_test_path(one.path, patterns)]

    for file in changed:
        if file.path in approved:
            continue
        is_test = is_test_path(file.path, patterns)
        findings += _find_line_signs(file, is_test=is_test)
        if is_test and file.old is not None and file.new is not None:
            findings += _compare_blocks(file)
        if is_test:
            findings += _find_empty_tests(file)
            findings += _find_mocks(file, targets)
        if is_snapshot(file.path) and file.old is not None:
            what = "rewritten" if file.new is not None else "deleted"
            findings.append(_finding("changed snapshot", Severity.ASK, file, 0, f"it was {what}"))
        if _CI.search(file.path):
            text = "the pipeline was changed"
            findings.append(_finding("changed CI", Severity.REJECT, file, 0, text))

    findings += _find_special_cases(changed, patterns)
    return findings[:MAX_SIGNS]


def _finding(
    kind: str, severity: Severity, file: ChangedText, line: int, text: str, detail: str = ""
) -> StrengthFinding:
    return StrengthFinding(
        kind=kind, severity=severity, path=file.path, line=line, text=text, detail=detail
    )


def list_added_lines(file: ChangedText) -> list[tuple[int, str]]:
    """Return the lines that were added, with their numbers; a moved line counts as old."""
    new = (file.new or "").splitlines()[:MAX_LINES]
    known = Counter(line.strip() for line in (file.old or "").splitlines()[:MAX_LINES])
    added = []
    for number, line in enumerate(new, 1):
        if known[line.strip()] > 0:
            known[line.strip()] -= 1
        else:
            added.append((number, line))
    return added


def _find_line_signs(file: ChangedText, *, is_test: bool) -> Iterator[StrengthFinding]:
    is_config = is_runner_config(file.path) or is_mixed_config(file.path)
    signs: tuple[Sign, ...] = ()
    if not _is_prose(file.path):
        signs += _EVERYWHERE
    if is_test or is_runner_config(file.path):
        signs += _IN_TESTS
    if is_config:
        signs += _IN_CONFIG

    for number, line in list_added_lines(file):
        for sign in signs:
            if sign.pattern.search(line):
                yield _finding(
                    sign.kind,
                    sign.severity,
                    file,
                    number,
                    f"{sign.text}: {line.strip()[:120]}",
                    detail=line.strip(),
                )
                break

    if is_config:
        yield from _find_removed_config(file)


def _find_removed_config(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield the lines about tests or coverage that were removed from a configuration."""
    backwards = ChangedText(file.path, file.new, file.old)
    for _, line in list_added_lines(backwards):
        for sign in _IN_CONFIG:
            if sign.pattern.search(line):
                text = f"{sign.text}; removed: {line.strip()[:120]}"
                yield _finding(sign.kind, sign.severity, file, 0, text, f"removed {line.strip()}")
                break


def _is_prose(path: str) -> bool:
    return path.endswith((".md", ".rst", ".txt", ".adoc", ".lock", "-lock.json"))


# --- assertions

_EXACT = re.compile(
    r"==|assertEqual|assertIs\b|assertListEqual|assertDictEqual|\.toBe\(|\.toEqual\(|\.toStrictEqual"
    r"|strictEqual|deepEqual|\.equal\(|\.toMatchObject|\.toHaveBeenCalledWith|\.rejects|\.toThrow"
)
_TOLERANCE = re.compile(
    r"\b(?:abs|rel|atol|rtol|delta|tolerance|tol|epsilon|eps)\s*[=:]\s*([0-9.eE+-]+)"
)
_DIGITS = re.compile(r"(?:toBeCloseTo\([^,()]*,|places\s*=|decimal\s*=)\s*([0-9]+)")


def _compare_blocks(file: ChangedText) -> Iterator[StrengthFinding]:
    """Compare the tests that exist before and after, by name."""
    assert file.old is not None
    assert file.new is not None
    old = {block.name: block for block in split_tests(file.path, file.old)}
    for block in split_tests(file.path, file.new):
        before = old.get(block.name)
        if before is not None and before.body != block.body:
            yield from _compare_assertions(file, before, block)


def _compare_assertions(
    file: ChangedText, before: TestBlock, after: TestBlock
) -> Iterator[StrengthFinding]:
    gone = [*(Counter(before.assertions) - Counter(after.assertions)).elements()]
    new = [*(Counter(after.assertions) - Counter(before.assertions)).elements()]
    if not gone:
        return

    if len(new) < len(gone):
        text = f"{after.name} lost an assertion: {gone[0][:120]}"
        yield _finding("removed assertion", Severity.ASK, file, after.line, text)
        return

    exact_before = sum(bool(_EXACT.search(one)) for one in gone)
    exact_after = sum(bool(_EXACT.search(one)) for one in new)
    if _is_wider("\n".join(gone), "\n".join(new)):
        text = f"{after.name} tolerates more: {gone[0][:80]} became {new[0][:80]}"
        yield _finding("widened tolerance", Severity.ASK, file, after.line, text)
    elif exact_after < exact_before:
        text = f"{after.name} asserts less: {gone[0][:80]} became {new[0][:80]}"
        yield _finding("loosened assertion", Severity.ASK, file, after.line, text)
    elif _is_trivial(new):
        text = f"{after.name} compares a value with itself: {new[0][:80]}"
        yield _finding("loosened assertion", Severity.REJECT, file, after.line, text)


def _is_trivial(assertions: Sequence[str]) -> bool:
    for one in assertions:
        sides = re.fullmatch(r"assert (.+) == (.+)", one)
        if sides and sides[1] == sides[2]:
            return True
    return False


def _is_wider(before: str, after: str) -> bool:
    old = [_to_number(number) for number in _TOLERANCE.findall(before)]
    new = [_to_number(number) for number in _TOLERANCE.findall(after)]
    if new and (not old or max(new) > max(old)):
        return True
    old = [_to_number(number) for number in _DIGITS.findall(before)]
    new = [_to_number(number) for number in _DIGITS.findall(after)]
    return bool(old and new and min(new) < min(old))


def _to_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _find_empty_tests(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield new or changed tests that assert nothing."""
    known = {block.body for block in split_tests(file.path, file.old or "")}
    for block in split_tests(file.path, file.new or ""):
        if not block.assertions and block.body not in known and not block.is_skipped:
            text = f"{block.name} asserts nothing"
            yield _finding("asserts nothing", Severity.ASK, file, block.line, text)


# --- mocks and special cases

_MOCK = re.compile(
    r"(?:\bpatch(?:\.object|\.dict)?|monkeypatch\.setattr|mocker\.patch(?:\.object)?"
    r"|jest\.(?:mock|doMock|spyOn|unstable_mockModule)|vi\.(?:mock|doMock|spyOn)"
    r"|mock\.(?:method|module)|sinon\.(?:stub|replace)|proxyquire|rewiremock)\s*\(\s*"
    r"['\"`]?([\w./@-]+)(?:['\"`]?\s*,\s*['\"]?([\w.]+))?"
)


def _find_mocks(file: ChangedText, targets: Sequence[str]) -> Iterator[StrengthFinding]:
    """Yield mocks of modules that the change itself contains."""
    modules = {re.sub(r"\.\w+$", "", path.rpartition("/")[2]): path for path in targets}
    for number, line in list_added_lines(file):
        for found in _MOCK.finditer(line):
            parts = [part for part in re.split(r"[./]", found[1]) if part]
            target = next((modules[part] for part in parts if part in modules), None)
            if target is not None:
                text = f"the test replaces a part of {target}, which it should test: "
                yield _finding(
                    "mocks the change", Severity.ASK, file, number, text + line.strip()[:120]
                )


_LITERAL = r"(-?\d[\d_.]*|'[^'\n]{2,}'|\"[^\"\n]{2,}\")"
_SPECIAL_CASE = re.compile(
    rf"(?:\bif\b|\bcase\b|\?|\belif\b)[^\n]*?(?:===?\s*\(?|\bin\s*[\[({{]|\bcase\s+){_LITERAL}"
)
_RETURNED = re.compile(rf"(?:\breturn\b|=>|\?)\s*\(?{_LITERAL}")
_TRIVIAL = frozenset(("0", "1", "-1", "2", "10", "100"))


def _find_special_cases(
    changed: Sequence[ChangedText], patterns: tuple[str, ...]
) -> Iterator[StrengthFinding]:
    """Yield conditions on a value after which a value is returned, if one test line has both."""
    test_lines = [
        line.replace('"', "'")
        for file in changed
        if is_test_path(file.path, patterns)
        for line in (file.new or "").splitlines()[:MAX_LINES]
    ]
    for file in changed:
        if is_test_path(file.path, patterns) or _is_prose(file.path):
            continue
        lines = list_added_lines(file)
        for index, (number, line) in enumerate(lines):
            condition = _SPECIAL_CASE.search(line)
            if condition is None:
                continue
            following = " ".join(text for _, text in lines[index : index + 2])
            returned = _RETURNED.search(following, condition.end() if "?" not in line else 0)
            if returned is None:
                continue
            pair = [condition[1].replace('"', "'"), returned[1].replace('"', "'")]
            if not _TRIVIAL.issuperset(pair) and any(
                all(_has_literal(text, value) for value in pair) for text in test_lines
            ):
                text = f"a test's value is answered by itself: {following.strip()[:120]}"
                yield _finding("special case for a test", Severity.ASK, file, number, text)


def _has_literal(line: str, value: str) -> bool:
    return bool(re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", line))
