"""Find signs of weakened tests in a change: removed assertions, skips, mocks, changed runners."""

from __future__ import annotations

import ast
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phasegate.core.test_strength.blocks import (
    JAVASCRIPT,
    MAX_TEXT_CHARS,
    TestBlock,
    count_cases,
    parse_python,
    split_tests,
)
from phasegate.core.test_strength.compare import ChangedText
from phasegate.core.test_strength.fitted_code import FittedCode
from phasegate.core.test_strength.model import Severity, StrengthFinding
from phasegate.core.test_strength.paths import (
    is_code,
    is_mixed_config,
    is_runner_config,
    is_snapshot,
    is_test_path,
)
from phasegate.core.test_strength.plain_python import list_plain_statements

# Where `npm test` and `make test` are defined
TASK_FILES = ("package.json", "Makefile", "makefile", "GNUmakefile")
_TEST_TASK = re.compile(
    r"\"(?:pre|post)?test(?::\w+)?\"\s*:\s*\"(?P<json>[^\"]*)\""
    r"|^(?:test|check)\S*[ \t]*:(?!=).*(?P<make>(?:\n[ \t]+.*)*)",
    re.M,
)
_PATH = re.compile(r"[\w.@+/-]+")
MAX_LINES = 20_000
MAX_SIGNS = 60
# Longer lines are searched in parts
_MAX_PIECE = 2_000


class Sign(NamedTuple):
    """A pattern in an added line, and its meaning."""

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
        r"\bos\._exit\s*\(|\bos\.(?:abort|kill)\s*\(|atexit\.register\([^)]*exit|['\"]_exit['\"]"
        r"|process\[['\"](?:exit|reallyExit|abort)['\"]"
        r"|process\.(?:reallyExit|abort)\s*\(|process\.exitCode\s*=\s*0|process\.on\(\s*['\"]exit",
    ),
    _sign(
        "writes a coverage report",
        Severity.REJECT,
        "the code names a coverage report, which only the coverage tool should write",
        r"['\"/](?:coverage\.(?:json|xml|lcov|out)|lcov\.info|cobertura(?:-coverage)?\.xml"
        r"|coverage-summary\.json)['\"]|\bCoverageData\s*\(",
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
    _sign(
        "false equality",
        Severity.ASK,
        "an equality that may not compare",
        r"__(?:eq|ne)__(?:['\"]\s*[:,]|\s*=(?!=))\s*(?!None\b|[\w.]+\.__)[A-Za-z_]",
    ),
)
# In code that is not test code
_IN_CODE = (
    _sign(
        "mocks in the code",
        Severity.ASK,
        "the code itself uses stand-ins for tests",
        r"\bfrom unittest(?:\.mock)? import .*(?:mock|Mock|ANY)|\bimport unittest\.mock"
        r"|\bMagicMock\(|\bmock\.ANY\b|\basymmetricMatch\b",
    ),
    _sign(
        "recognises its runner",
        Severity.ASK,
        "the code can tell whether it is being tested",
        r"\bin (?:list\(|tuple\(|set\()?sys\.modules\b|\bsys\.modules\.(?:get|keys|items|copy)\("
        r"|\b(?:environ|getenv|process\.env|Getenv)\b.{0,40}(?:TEST|JEST|MOCHA)"
        r"|NODE_ENV.{0,20}['\"`]test|(?=.*(?i:test|spec|mocha|jest)).*(?:\bsys\.(?:orig_)?argv"
        r"|process\.(?:argv|title)|require\.main|module\.parent|__main__['\"\]]*\.__file__)"
        r"|\bnpm_(?:lifecycle|package|config)_\w+|process\.execArgv|\bsys\.flags\b"
        r"|\bfor\b[^\n]{1,60}\b(?:in|of)\b[^\n]{0,20}(?:os\.environ|process\.env)\b"
        r"|Object\.\w+\((?:process\.env|require\.cache)\)\s*\.|stringify\(process\.env"
        r"|\b(?:str|repr|len|sorted|list|set)\((?:os\.environ|sys\.modules)\b"
        r"|\bsys\.(?:orig_argv|gettrace|getprofile|meta_path)\b"
        r"|['\"]-?\w[^'\"]*['\"] (?:not )?in sys\.argv\b"
        r"|\bsys\.argv\[0\].*(?:[!=]=|\.(?:endswith|startswith|find|split)\()"
        r"|process\.argv(?:\.(?:some|find|join|includes)\((?!['\"]--)|\[1\]\.)"
        r"|process\.moduleLoadList"
        r"|\bmodule\.(?:parent|children)\b|require\.main(?! ===? module\))"
        r"|\btype\(sys\.std(?:out|err)\)"
        r"|(?i:['\"`][^'\"`]*(?:\b_?py_?test|\bunittest|@py_assert|node:test|test_runner"
        r"|test_context|\b(?:vitest|mocha|jest)\b))|^\s*(?:import|from) (?:pytest|unittest)\b"
        r"|\b(?:globalThis|global|window)\.(?:expect|jest|it|describe|vi|test)\b"
        r"|typeof (?:jest|it|describe|expect|vi|test)\b|(?<!\w)(?:pytest|unittest)\."
        r"|/proc/(?:self|\{|\d)|\bgetppid\(|process\.ppid\b|\bwarnings\.filters\b",
    ),
    _sign(
        "looks at its callers",
        Severity.ASK,
        "the code can tell who calls it, also a test",
        r"inspect\.currentframe\(|\b(?:extract|format|print)_stack\(|\b_current_frames\(|\.f_back\b"
        r"|\.tb_frame\b|\bgc\.get_(?:objects|referrers)\(|Error\([^)]*\)\.stack\b|__subclasses__\("
        r"|\bwalk_stack\(|StackSummary|\.stack\.(?:includes|match|indexOf|split|search)|\{\s*stack\s*\}"
        r"|(?:capture|prepare)StackTrace",
    ),
    _sign(
        "reads a test file",
        Severity.ASK,
        "the code names a test file, whose expectations it could read",
        r"['\"`](?:[^'\"`]*/)?(?:tests?/[^'\"`]*|test_\w+|\w+_test|\w+\.(?:test|spec))\.\w+['\"`]"
        r"|\bglob\w*\([^()\n]*['\"`][^'\"`\n]*\*[^'\"`\n]*\.(?:py|[cm]?[jt]sx?)['\"`]"
        r"|\b__file__\b.*\.(?:iterdir|r?glob)\(|\b(?:os\.(?:listdir|scandir|walk)|readdir\w*)"
        r"\((?:['\"`]\.?['\"`]|__dirname|[^()]*__file__)?[^()\w]*[),]",
    ),
    _sign(
        "hides a text",
        Severity.ASK,
        "a text is written so that it cannot be searched",
        r"\b(?:b(?:16|32|64|85)|a85)decode\(\s*b?['\"]|\b(?:fromhex|unhexlify)\(\s*b?['\"]|rot_?13"
        r"|['\"]\)?\.(?:toUpperCase|toLowerCase)\(|\batob\(\s*['\"]",
    ),
    _sign(
        "changes coverage",
        Severity.ASK,
        "the code is excluded from the measured coverage",
        r"pragma: no (?:cover|branch)|(?:istanbul|c8|v8) ignore|LCOV_EXCL|coverage:ignore",
    ),
    _sign(
        "false equality",
        Severity.ASK,
        "an object that is compared as another value",
        r"\bvalueOf\s*(?::|\(\)\s*\{|=)|\[Symbol\.toPrimitive\]",
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
        "widened tolerance",
        Severity.ASK,
        "a tolerance of half of the value or more",
        r"\b(?:rel|rtol)\s*=\s*(?:0?\.[5-9]|[1-9][\d.]*(?!\d*e-)|\d+[\d.]*e\+?\d)"
        r"|(?:toBeCloseTo\([^,()]*,|places\s*=|decimal\s*=)\s*-",
    ),
    _sign(
        "runs only some tests",
        Severity.REJECT,
        "only the marked tests are run",
        r"\b(?:it|test|describe|context|suite)\.only\b|^\s*f(?:it|describe)\(|\bonly['\"]?\s*:\s*(?:true|!0|1)\b",
    ),
    _sign(
        "swallows failures",
        Severity.ASK,
        "a failed assertion has no effect",
        r"except(?:\s*\(?\s*(?:AssertionError|BaseException|Exception)[^:]*)?:\s*(?:pass|return|\.\.\.)?\s*$"
        r"|contextlib\.suppress\(|catch\s*(?:\([^)]*\))?\s*\{\s*\}",
    ),
)
_IN_JAVASCRIPT_TESTS = (
    _sign(
        "ends a test early",
        Severity.ASK,
        "what follows in the test is not evaluated",
        r"^\s*return\s*;?\s*(?://.*)?$|\bif\s*\(\s*(?:false|0)\s*\)",
    ),
    _sign(
        "swallows failures",
        Severity.ASK,
        "a failed assertion has no effect",
        r"\.catch\(\s*(?:\(\s*\w*\s*\)|\w+)\s*=>\s*(?:\{\s*\}|[\w'\"]+)\s*\)",
    ),
    _sign(
        "asserts nothing",
        Severity.ASK,
        "the assertion is true whatever the code does",
        r"\b(?:assert|expect)\b.*\|\|\s*(?:true|1|!0)\s*[,)]",
    ),
)
# In files that configure a test runner, a build or CI
_IN_CONFIG = (
    _sign(
        "changes which tests run",
        Severity.REJECT,
        "the configuration selects tests",
        r"(?:^\s*|[{,]\s*)[\"']?(?:addopts|testpaths|python_files|python_classes|python_functions|norecursedirs"
        r"|collect_ignore|testMatch|testRegex|testPathIgnorePatterns|modulePathIgnorePatterns"
        r"|testNamePattern|script-shell|node-options|passWithNoTests|exclude|include|spec|ignore|grep|bail|roots"
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
        "writes a coverage report",
        Severity.REJECT,
        "a command other than the coverage tool writes a coverage report",
        r"(?:\b(?:cp|mv|echo|printf|cat|tee|install|ln)\b|>).*\b(?:coverage\.(?:json|xml|lcov|out)"
        r"|lcov\.info|cobertura(?:-coverage)?\.xml|coverage-summary\.json)",
    ),
    _sign(
        "changes how tests run",
        Severity.ASK,
        "the configuration changes what a test run loads, ignores or repeats",
        r"\b(?:retry|retries|reruns|dangerouslyIgnoreUnhandledErrors|allowOnly|moduleNameMapper"
        r"|alias|testRunner|runner|setupFiles\w*|globalSetup|globalTeardown|automock|testEnvironment"
        r"|snapshotResolver|required_plugins|pythonpath|pytest11|xfail_strict)[\"']?\s*[\]:=]",
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
    r"^\.github/workflows/|^\.github/actions/|^\.gitlab-ci\.ya?ml$|^\.gitlab/ci/|^\.circleci/"
    r"|^\.?(?:azure-pipelines|appveyor|bitbucket-pipelines|travis|drone|cirrus|buildspec"
    r"|cloudbuild|woodpecker|semaphore|codefresh|screwdriver|wercker)\.ya?ml$"
    r"|(?:^|/)Jenkinsfile$|^\.(?:buildkite|woodpecker|semaphore|teamcity|ci|tekton)/|^ci/"
    r"|^\.(?:forgejo|gitea)/workflows/|^(?:scripts|tools|bin)/ci\b"
)
_COVERAGE_REPORT = re.compile(
    r"(?:^|/)(?:\.coverage|coverage\.(?:json|xml|lcov|out)|lcov\.info"
    r"|cobertura(?:-coverage)?\.xml|coverage-(?:summary|final)\.json)$"
)
# Loaded by the interpreter or in the place of the runner
_SHADOWING = re.compile(
    r"(?:^|/)(?:sitecustomize|usercustomize)\.py$|\.pth$"
    r"|^(?:src/)?(?:pytest|_pytest|pluggy|unittest|coverage)(?:\.py|/__init__\.py)$"
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
        if file.path.endswith(".py"):
            findings += _find_false_equality(file)
        if is_test:
            findings += _find_unreadable(file)
            findings += _find_overridden_tests(file)
            findings += _find_empty_tests(file)
            findings += _find_vague_tests(file)
            findings += _find_mocks(file, targets)
        else:
            findings += _find_removed_checks(file)
        if is_snapshot(file.path) and file.old is not None:
            what = "rewritten" if file.new is not None else "deleted"
            findings.append(_finding("changed snapshot", Severity.ASK, file, 0, f"it was {what}"))
        if file.new is not None and _COVERAGE_REPORT.search(file.path):
            text = "a coverage report is part of the change"
            findings.append(_finding("writes a coverage report", Severity.REJECT, file, 0, text))
        if file.old is None and _SHADOWING.search(file.path):
            text = "it is loaded in the place of the test runner, or before it"
            findings.append(_finding("changes the test run", Severity.REJECT, file, 0, text))
        if _CI.search(file.path):
            text = "the pipeline was changed"
            findings.append(_finding("changed CI", Severity.REJECT, file, 0, text))

    findings += _find_removed_cases([one for one in changed if is_test_path(one.path, patterns)])
    findings += _find_special_cases(changed, patterns)
    findings += _find_copied_literals(changed, patterns)
    findings += _find_fitted_code(changed, patterns)
    return sorted(findings, key=lambda one: one.severity is Severity.ASK)[:MAX_SIGNS]


def find_rewritten_scripts(
    command: str, tasks: str, changed: Sequence[ChangedText], patterns: tuple[str, ...] = ()
) -> list[StrengthFinding]:
    """Ask about changed scripts that a test command names: they decide what is a failure.

    `tasks` is the text of the file in which a command like `npm test` is defined.
    """
    defined = (found["json"] or found["make"] for found in _TEST_TASK.finditer(tasks))
    words = {posixpath.normpath(word) for word in _PATH.findall("\n".join((command, *defined)))}
    return [
        _finding("changes the test command", Severity.ASK, file, 0, "the test command runs it")
        for file in changed
        if file.path in words and file.old not in (None, file.new)
        if not (is_test_path(file.path, patterns) and split_tests(file.path, file.old or ""))
    ]


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


_JOINED_LITERALS = re.compile(r"(['\"])\s*\+?\s*[rbf]?\1")


def _find_line_signs(file: ChangedText, *, is_test: bool) -> Iterator[StrengthFinding]:
    """Yield added lines that weaken tests or recognize a test run."""
    is_config = is_runner_config(file.path) or is_mixed_config(file.path)
    signs: tuple[Sign, ...] = ()
    if not _is_prose(file.path):
        signs += _EVERYWHERE
    if is_test or is_runner_config(file.path):
        signs += _IN_TESTS
    elif is_code(file.path) and not is_config:
        signs += _IN_CODE
    if is_test and file.path.endswith(JAVASCRIPT):
        signs += _IN_JAVASCRIPT_TESTS
    if is_config:
        signs += _IN_CONFIG
    if _is_settings(file.path) and file.old is not None:
        signs += (_OTHER_SETTING,)

    known: set[int] = set()
    for lines, line in _list_pieces(file):
        found = _match_sign(line, signs)
        # The plain form of a line that was found already says nothing more
        if found is not None and known.isdisjoint(lines):
            known.update(lines)
            yield _finding(
                found.kind,
                found.severity,
                file,
                lines.start,
                f"{found.text}: {line.strip()[:120]}",
                detail=line.strip(),
            )

    if is_config:
        yield from _find_removed_config(file)
        yield from _find_changed_recipes(file)


def _list_pieces(file: ChangedText) -> Iterator[tuple[range, str]]:
    """Yield added lines, in parts if they are long, and added Python statements in plain form."""
    added = list_added_lines(file)
    pieces = [(range(number, number + 1), line) for number, line in added]
    if file.path.endswith(".py"):
        pieces += list_plain_statements(file.new or "", {number for number, _ in added})
    for lines, text in pieces:
        for start in range(0, len(text), _MAX_PIECE // 2):
            yield lines, text[start : start + _MAX_PIECE]


def _find_removed_config(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield the lines about tests or coverage that were removed from a configuration."""
    backwards = ChangedText(file.path, file.new, file.old)
    for _, line in list_added_lines(backwards):
        for sign in _IN_CONFIG:
            if sign.pattern.search(line):
                text = f"{sign.text}; removed: {line.strip()[:120]}"
                yield _finding(sign.kind, sign.severity, file, 0, text, f"removed {line.strip()}")
                break


def _match_sign(line: str, signs: Sequence[Sign]) -> Sign | None:
    # Two literals that are joined in the source are one word when the code runs
    joined = _JOINED_LITERALS.sub("", line)
    for sign in signs:
        if sign.pattern.search(line) or sign.pattern.search(joined):
            return sign
    return None


# Lines of a runner's configuration that do not decide what is run and what passes
_OTHER_SETTING = _sign(
    "changes how tests run",
    Severity.ASK,
    "the runner's configuration was changed",
    # Layout, comments and headings
    r"^(?!\s*(?:$|[#;/*]|[\[\](){}]+[;,]?\s*$|\[[\w:. -]+\]\s*$|import\b|const \w+ = require"
    r"|(?:export default|module\.exports\s*=)[\s\w]*[({\[]*\s*[\])}]*;?\s*$|test\s*:\s*\{\s*$)"
    # Names of markers
    r"|\s+[\w-]+:\s+\w+ \w[\w ]*$|\s*py[\w{},]*$"
    r"|\s*(?:(?:export default|module\.exports\s*=)[\s\w(]*\{\s*(?:test\s*:\s*\{\s*)?)?"
    r"['\"]?(?:markers|verbose|silent|reporters?|show_missing|skip_covered|precision|title"
    r"|globals|environment|preset|cacheDir\w*|cache_dir|log_\w+|minversion|junit_\w+"
    r"|console_output_style|testTimeout|env_?list|clearMocks|resetMocks|restoreMocks|displayName|branch"
    r"|parallel|maxWorkers)['\"]?\s*[:=](?:[^,\[]|\[[^\]]*\])*,?[\s})]*;?\s*$)",
)
_SETTINGS = re.compile(
    r"(?:\.ini|\.coveragerc|\.config\.\w+|\.mocharc[.\w]*|\.taprc|\.npmrc|\.c8rc[.\w]*|bunfig\.toml"
    r"|\.nycrc[.\w]*|vitest\.workspace\.\w+)$"
)


def _is_settings(path: str) -> bool:
    """Return True for the settings of a test runner, in which few changes are harmless."""
    return is_runner_config(path) and bool(_SETTINGS.search(path))


_RECIPE = re.compile(
    r"^(?P<name>(?:[\w-]*[-_])?(?:tests?|check|ci|cov\w*)(?:[-_][\w-]*)?)[^:=\n]*:(?!=).*\n"
    r"(?P<body>(?:[ \t]+.*\n?|[ \t]*\n)*)",
    re.M,
)


def _find_changed_recipes(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield the targets of a Makefile or justfile that test and have other commands now."""
    if not file.path.lower().endswith(("makefile", "justfile")):
        return
    new = {found["name"]: found["body"].split() for found in _RECIPE.finditer(file.new or "")}
    for found in _RECIPE.finditer(file.old or ""):
        if new.get(found["name"]) != found["body"].split():
            text = f"the commands of the target {found['name']} were changed"
            yield _finding("changes the test command", Severity.REJECT, file, 0, text)


def _is_prose(path: str) -> bool:
    return path.endswith((".md", ".rst", ".txt", ".adoc", ".lock", "-lock.json"))


# --- assertions

_EXACT = re.compile(
    r"==|assertEqual|assertIs\b|assertListEqual|assertDictEqual|\.toBe\(|\.toEqual\(|\.toStrictEqual"
    r"|strictEqual|deepEqual|\.equal\(|\.toMatchObject|\.toHaveBeenCalledWith|\.rejects|\.toThrow"
)
_INLINE_SNAPSHOT = re.compile(r"InlineSnapshot\b|\bsnapshot\(")
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
        if before is None or before.text == block.text:
            continue
        yield from _compare_assertions(file, before, block)
        now = {*block.conditional} - {*before.conditional}
        if hidden := [one for one in before.assertions if one in now]:
            text = f"{block.name} evaluates this only sometimes now: {hidden[0][:120]}"
            yield _finding("conditional assertion", Severity.ASK, file, block.line, text)


def _find_removed_cases(tests: Sequence[ChangedText]) -> Iterator[StrengthFinding]:
    """Yield the test files that lost a row of a table which no other test file has now."""
    kept = Counter[str]()
    for file in tests:
        kept += count_cases(file.path, file.new or "")
    for file in tests:
        lost = count_cases(file.path, file.old or "") - kept
        if lost and file.new is not None:
            text = f"it lost a case: {next(iter(lost))[:120]}"
            yield _finding("removed case", Severity.ASK, file, 0, text)


def _compare_assertions(
    file: ChangedText, before: TestBlock, after: TestBlock
) -> Iterator[StrengthFinding]:
    """Yield a finding if a changed test asserts less than before."""
    gone = [*(Counter(before.assertions) - Counter(after.assertions)).elements()]
    new = [*(Counter(after.assertions) - Counter(before.assertions)).elements()]
    if not gone:
        return

    snapshots = [one for one in gone if _INLINE_SNAPSHOT.search(one)]
    if snapshots:
        text = f"{after.name} had another snapshot: {snapshots[0][:120]}"
        yield _finding("changed snapshot", Severity.ASK, file, after.line, text)
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


def _find_unreadable(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield a test file that is too large to be examined."""
    if len(file.new or "") > MAX_TEXT_CHARS:
        text = "it is too large to be examined"
        yield _finding("unreadable test file", Severity.ASK, file, 0, text)


# `test_x = ...`, `Adding.test_x.__code__ = ...`, `del test_x`, `setattr(test_x, ...)`
_CHANGED_NAME = re.compile(
    r"\s*(?:(?:del\s+|(?:set|del)attr\(\s*)([\w.]+)|([\w.]+)\s*(?::[^=]+)?=(?!=))"
)


def _find_overridden_tests(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield Python tests that another one with the same name replaces, so that they never run."""
    if not file.path.endswith(".py"):
        return
    known = Counter(block.name for block in split_tests(file.path, file.old or ""))
    seen: Counter[str] = Counter()
    for block in split_tests(file.path, file.new or ""):
        seen[block.name] += 1
        if seen[block.name] > max(known[block.name], 1):
            text = f"{block.name} is defined twice, so the first one never runs"
            yield _finding("overridden test", Severity.ASK, file, block.line, text)

    names = {part for name in seen for part in name.split(".")}
    for number, line in list_added_lines(file):
        changed = _CHANGED_NAME.match(line)
        if changed and not names.isdisjoint((changed[1] or changed[2]).split(".")):
            text = f"the test is replaced or removed after its definition: {line.strip()[:120]}"
            yield _finding("overridden test", Severity.ASK, file, number, text)


def _find_false_equality(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield definitions of equality that do not compare: such a value passes every assertion."""
    added = {number for number, _ in list_added_lines(file)}
    for node in parse_python(file.new or ""):
        if not isinstance(node, ast.FunctionDef):
            continue
        lines = {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        if lines & added and _is_false_equality(node):
            text = "a value of this type is equal to others without a comparison"
            yield _finding("false equality", Severity.ASK, file, node.lineno, text)
            return


def _is_false_equality(node: ast.FunctionDef) -> bool:
    if node.name not in ("__eq__", "__ne__") or not node.args.args:
        return False
    return not _compares_both(node, *(one.arg for one in node.args.args[:2]))


def _compares_both(function: ast.FunctionDef, *names: str) -> bool:
    """Return True if an equality compares something of both objects, and nothing overrules it."""
    compared = False
    for node in ast.walk(function):
        if isinstance(node, ast.Compare | ast.Call):
            both = _names_in(node).issuperset(names)
            is_test = "isinstance" in ast.unparse(node) or isinstance(
                getattr(node, "ops", [None])[0], ast.Is | ast.IsNot
            )
            compared |= both and not is_test
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            is_identity = [ast.unparse(value) == " is ".join(names) for value in node.values]
            if not all(
                _names_in(value).issuperset(names) or same
                for value, same in zip(node.values, is_identity, strict=True)
            ):
                return False
    return compared


def _names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


_CHECK = re.compile(
    r"^\s*assert\b|\bAssertionError\b|\bassert(?:\.\w+)?\(|\.assert\w+\(|\bexpect\("
)


def _find_removed_checks(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield an assertion that code lost: tests may use it as a helper."""
    backwards = ChangedText(file.path, file.new, file.old)
    for _, line in list_added_lines(backwards):
        if file.new is not None and is_code(file.path) and _CHECK.search(line):
            text = f"code outside of the tests lost an assertion: {line.strip()[:120]}"
            yield _finding("removed assertion", Severity.ASK, file, 0, text)


# What only says that there is a result, or of which type it is
_TYPE_ONLY = re.compile(
    r"^assert (?:isinstance|callable|hasattr|issubclass)\(|^assert [^=<>]* is not None$"
    r"|^assert type\(.*\) (?:is|==) \w+$|\.assert(?:IsInstance|IsNotNone|HasAttr)\("
    r"|\btypeof\b|\.to(?:BeDefined|BeInstanceOf|BeTypeOf)\("
)


def _find_vague_tests(file: ChangedText) -> Iterator[StrengthFinding]:
    """Yield the first new test of a file if none of its new tests asserts a value."""
    known = {block.body for block in split_tests(file.path, file.old or "")}
    new = [
        block
        for block in split_tests(file.path, file.new or "")
        if block.body not in known and block.assertions and not block.is_skipped
    ]
    asserted = [one for block in new for one in block.assertions]
    if asserted and all(_TYPE_ONLY.search(one) for one in asserted):
        text = f"no new test asserts a value: {asserted[0][:120]}"
        yield _finding("asserts only a type", Severity.ASK, file, new[0].line, text)


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


_COMPARED = re.compile(r"[!=]==?|\bcase\b|\bmatch\b|\.equals\(")


def _find_copied_literals(
    changed: Sequence[ChangedText], patterns: tuple[str, ...]
) -> Iterator[StrengthFinding]:
    """Yield conditions and functions that have the input and the result of one test line."""
    test_lines = [
        line.replace('"', "'")
        for file in changed
        if is_test_path(file.path, patterns)
        for line in (file.new or "").splitlines()[:MAX_LINES]
    ]
    for file in changed:
        if is_test_path(file.path, patterns) or not is_code(file.path):
            continue
        lines = list_added_lines(file)
        for index, (number, line) in enumerate(lines):
            following = " ".join(text for _, text in lines[index : index + 2])
            values = {found.replace('"', "'") for found in re.findall(_LITERAL, following)}
            if not _COMPARED.search(line) or len(values - _TRIVIAL) < 2:
                continue
            if any(all(_has_literal(text, value) for value in values) for text in test_lines):
                text = f"all values of it are those of one test: {following.strip()[:120]}"
                yield _finding("special case for a test", Severity.ASK, file, number, text)


def _find_fitted_code(
    changed: Sequence[ChangedText], patterns: tuple[str, ...]
) -> Iterator[StrengthFinding]:
    """Yield new functions that answer only the values of the tests."""
    code = [one for one in changed if is_code(one.path) and not is_test_path(one.path, patterns)]
    tests = [one for one in changed if is_test_path(one.path, patterns)]
    fitted = FittedCode(*("\n".join(one.new or "" for one in files) for files in (code, tests)))
    for file in code:
        added = {number for number, _ in list_added_lines(file)}
        for number, what in fitted.find(file.path, (file.new or "")[:MAX_TEXT_CHARS], added):
            yield _finding("special case for a test", Severity.ASK, file, number, what)


def _has_literal(line: str, value: str) -> bool:
    return bool(re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", line))
