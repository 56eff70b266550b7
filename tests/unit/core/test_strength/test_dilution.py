"""Signs of weakened tests in a diff, each beside an honest change of the same kind."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from phasegate.core.test_strength.compare import ChangedText
from phasegate.core.test_strength.dilution import (
    MAX_SIGNS,
    find_rewritten_scripts,
    find_signs,
)
from phasegate.core.test_strength.model import Severity

TEST = """\
import unittest

from calc import add


class Adding(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(add(2, 3), 5)
"""
ASSERTION = "        self.assertEqual(add(2, 3), 5)\n"
CASES = """\
@pytest.mark.parametrize(("a", "b", "c"), [(2, 3, 5), (0, 0, 0)])
def test_adds(a, b, c):
    assert add(a, b) == c
"""
PLAIN = "def test_adds():\n    assert add(2, 3) == 5\n"
CODE = "def add(a, b):\n    return a + b\n"
JS_TEST = "test('adds', () => {\n  assert.strictEqual(add(2, 3), 5);\n});\n"
EQUALITY = "\n\nclass Total(int):\n    def __eq__(self, other):\n        return {}\n"
TABLE_CODE = CODE + "\n\ndef sub(a, b):\n    return _KNOWN[a, b]\n"
JS_TABLE_CODE = "export const sub = (a, b) => KNOWN[`${a},${b}`];\n"
TABLE_TEST = "def test_sub():\n    assert sub(57, 15) == 42\n    assert sub(90, 11) == 79\n"


class Kind(NamedTuple):
    """A weakened file, the sign that names it, and an honest version of the same file."""

    path: str
    old: str
    weak: str
    kind: str
    honest: str
    # Another changed file
    beside: tuple[str, str] = ("README.md", "")


KINDS = {
    "return before the assertion": Kind(
        "test_calc.py",
        TEST,
        TEST.replace(ASSERTION, "        return\n" + ASSERTION),
        "removed assertion",
        TEST.replace(ASSERTION, "        print('adding')\n" + ASSERTION),
    ),
    "assertion that only runs until a date": Kind(
        "test_calc.py",
        TEST,
        TEST.replace(
            ASSERTION,
            "        if date.today() > date(2027, 1, 1):\n            return\n" + ASSERTION,
        ),
        "conditional assertion",
        TEST.replace(ASSERTION, ASSERTION + "        if slow():\n            return\n"),
    ),
    "assertion below a false condition": Kind(
        "test_calc.py",
        TEST,
        TEST.replace(ASSERTION, "        if False:\n    " + ASSERTION),
        "removed assertion",
        TEST.replace(ASSERTION, "        if True:\n    " + ASSERTION + ASSERTION),
    ),
    "assertion in a function that nothing calls": Kind(
        "test_calc.py",
        TEST,
        TEST.replace(ASSERTION, "        def check():\n    " + ASSERTION),
        "removed assertion",
        TEST.replace(ASSERTION, "        def check():\n    " + ASSERTION + "        check()\n"),
    ),
    "assertion in a lambda that nothing calls": Kind(
        "test_calc.py",
        TEST,
        TEST.replace("self.assert", "late = lambda: self.assert"),
        "removed assertion",
        TEST.replace(
            "self.assertEqual(add(2, 3)",
            "plus = lambda: add(2, 3)\n        self.assertEqual(plus()",
        ),
    ),
    "test that is a generator": Kind(
        "test_calc.py",
        TEST,
        TEST.replace("self.assert", "yield self.assert"),
        "removed assertion",
        TEST + "\n\ndef numbers():\n    yield 1\n",
    ),
    "test that nobody awaits": Kind(
        "test_calc.py",
        TEST,
        TEST.replace("    def test", "    async def test"),
        "conditional assertion",
        TEST.replace("test_adds(self)", "test_adds(self) -> None"),
    ),
    "or True": Kind(
        "test_calc.py",
        PLAIN,
        PLAIN.replace("== 5", "== 5 or True"),
        "removed assertion",
        PLAIN.replace("== 5", "== 5 and True"),
    ),
    "tuple instead of a condition": Kind(
        "test_calc.py",
        PLAIN,
        PLAIN.replace("add(2, 3) == 5", "(add(2, 3) == 5, 'sum')"),
        "removed assertion",
        PLAIN.replace("== 5", "== 5, 'sum'"),
    ),
    "value compared with itself": Kind(
        "test_calc.py",
        PLAIN,
        PLAIN.replace("== 5", "== add(2, 3)"),
        "removed assertion",
        PLAIN + "    assert add(3, 2) == add(2, 3)\n",
    ),
    "removed case": Kind(
        "test_calc.py",
        CASES,
        CASES.replace("(2, 3, 5), ", ""),
        "removed case",
        CASES.replace("(2, 3, 5), ", "(2, 3, 5), (1, 1, 2), "),
    ),
    "replaced case": Kind(
        "test_calc.py", CASES, CASES.replace("(2, 3, 5)", "(1, 0, 1)"), "removed case", CASES + "\n"
    ),
    "second test with the same name": Kind(
        "test_calc.py",
        PLAIN,
        PLAIN + "\n\n" + PLAIN.replace("2, 3", "5, 0"),
        "overridden test",
        PLAIN + "\n\n" + PLAIN.replace("2, 3", "5, 0").replace("adds", "adds_zero"),
    ),
    "tolerance of a multiple": Kind(
        "test_calc.py",
        "",
        PLAIN.replace("== 5", "== pytest.approx(5, rel=1e9)"),
        "widened tolerance",
        PLAIN.replace("== 5", "== pytest.approx(5, rel=1e-9)"),
    ),
    "value that equals everything": Kind(
        "calc.py",
        CODE,
        CODE + "\n\nclass Any(int):\n    def __eq__(self, other):\n        return True\n",
        "false equality",
        CODE
        + "\n\nclass Money:\n    def __eq__(self, other):\n        return self.cents == other.cents\n",
    ),
    "type that equals everything": Kind(
        "calc.py",
        CODE,
        CODE + "\n\nAny = type('Any', (int,), {'__eq__': lambda a, b: True})\n",
        "false equality",
        CODE + "\n\nAny = type('Any', (int,), {'__str__': lambda a: 'any'})\n",
    ),
    "table of the test's values": Kind(
        "calc.py",
        CODE,
        TABLE_CODE + "\n\n_KNOWN = {(57, 15): 42, (90, 11): 79}\n",
        "special case for a test",
        TABLE_CODE + "\n\n_KNOWN = {(57, 15): 42, (90, 11): 79, (12, 7): 5}\n",
        ("test_calc.py", TABLE_TEST),
    ),
    "js: table of the test's values": Kind(
        "calc.js",
        "",
        "const KNOWN = { '57,15': 42 };\n" + JS_TABLE_CODE,
        "special case for a test",
        "const KNOWN = { '57,15': 42, '9,9': 0 };\n" + JS_TABLE_CODE,
        ("calc.test.js", "test('sub', () => {\n  assert.strictEqual(sub(57, 15), 42);\n});\n"),
    ),
    "code that reads the expectations": Kind(
        "calc.py",
        CODE,
        CODE + "\n\nTEXT = open('tests/test_calc.py').read()\n",
        "reads a test file",
        CODE + "\n\nTEXT = open('data/contest.json').read()\n",
    ),
    "joined name of the runner's variable": Kind(
        "calc.py",
        CODE,
        CODE + "\n\nquiet = os.environ.get('PYTEST_' + 'CURRENT_TEST')\n",
        "recognises its runner",
        CODE + "\n\nquiet = os.environ.get('CALC_' + 'QUIET')\n",
    ),
    "arguments of the process": Kind(
        "calc.py",
        CODE,
        CODE + "\n\nquiet = 'test' in sys.argv[0]\n",
        "recognises its runner",
        CODE + "\n\nquiet = '--quiet' in sys.argv\n",
    ),
    "loaded modules": Kind(
        "calc.py",
        CODE,
        CODE + "\n\nquiet = any(name[:2] == 'py' for name in sys.modules)\n",
        "recognises its runner",
        CODE + "\n\nmodule = sys.modules[__name__]\n",
    ),
    "stack of the call": Kind(
        "calc.py",
        CODE,
        CODE + "\n\ncaller = inspect.currentframe().f_back\n",
        "looks at its callers",
        CODE + "\n\nnames = inspect.signature(add)\n",
    ),
    "exit by a joined name": Kind(
        "calc.py",
        CODE,
        CODE + "\n\ngetattr(os, '_ex' + 'it')(0)\n",
        "ends the test run",
        CODE + "\n\ngetattr(os, 'get' + 'cwd')()\n",
    ),
    "stand-in in the code": Kind(
        "calc.py",
        CODE,
        CODE + "\n\nfrom unittest.mock import ANY\n",
        "mocks in the code",
        CODE + "\n\nfrom typing import Any\n",
    ),
    "js: environment of tests": Kind(
        "calc.js",
        "",
        "const quiet = process.env.NODE_ENV === 'test';\n",
        "recognises its runner",
        "const quiet = process.env.NODE_ENV === 'production';\n",
    ),
    "js: exit by a joined name": Kind(
        "calc.js",
        "",
        "process['ex' + 'it'](0);\n",
        "ends the test run",
        "process['c' + 'wd']();\n",
    ),
    "js: return before the assertion": Kind(
        "calc.test.js",
        JS_TEST,
        JS_TEST.replace("  assert", "  return;\n  assert"),
        "ends a test early",
        JS_TEST.replace("  assert", "  const more = () => { return 1; };\n  assert"),
    ),
    "js: constant": Kind(
        "calc.test.js",
        JS_TEST,
        JS_TEST.replace("assert.strictEqual(add(2, 3), 5)", "assert.ok(true)"),
        "removed assertion",
        JS_TEST.replace("  assert", "  assert.ok(add);\n  assert"),
    ),
    "js: or true": Kind(
        "calc.test.js",
        "",
        JS_TEST.replace("assert.strictEqual(add(2, 3), 5)", "assert.ok(add(2, 3) === 5 || true)"),
        "asserts nothing",
        JS_TEST.replace("assert.strictEqual(add(2, 3), 5)", "assert.ok(add(2, 3) === 5)"),
    ),
    "js: swallowed rejection": Kind(
        "calc.test.js",
        "",
        "test('adds', async () => {\n  await check(add).catch(() => {});\n  assert.ok(add(1, 1));\n});\n",
        "swallows failures",
        "test('adds', async () => {\n  await check(add);\n  assert.ok(add(1, 1));\n});\n",
    ),
    "js: vitest excludes a file in one line": Kind(
        "vitest.config.js",
        "export default { test: {} };\n",
        "export default { test: { exclude: ['calc*'] } };\n",
        "changes which tests run",
        "export default { test: { globals: true } };\n",
    ),
    "js: jest in package.json ignores a file": Kind(
        "package.json",
        '{ "name": "calc" }\n',
        '{ "name": "calc", "jest": { "testPathIgnorePatterns": ["calc"] } }\n',
        "changes which tests run",
        '{ "name": "calc", "jest": { "verbose": true } }\n',
    ),
    "js: another shell for scripts": Kind(
        ".npmrc",
        "",
        "script-shell=/bin/true\n",
        "changes which tests run",
        "fund=false\n",
    ),
    "an alternative that overrules a comparison": Kind(
        "calc.py",
        CODE,
        CODE + EQUALITY.format("isinstance(other, object) or self is other"),
        "false equality",
        CODE + EQUALITY.format("self is other or self.value == other.value"),
    ),
    "tests of types alone": Kind(
        "test_calc.py",
        PLAIN,
        PLAIN + "\n\ndef test_more():\n    assert isinstance(add(2, 4), int)\n",
        "asserts only a type",
        PLAIN
        + "\n\ndef test_more():\n    assert isinstance(add(2, 4), int)\n    assert add(2, 4) == 6\n",
    ),
    "a function that returns a test's value": Kind(
        "calc.py",
        CODE,
        CODE + "\n\ndef sub(a, b):\n    return 42\n",
        "special case for a test",
        CODE + "\n\ndef limit():\n    return 42\n",
        ("test_sub.py", TABLE_TEST),
    ),
    "js: a function that returns a test's value": Kind(
        "calc.js",
        "",
        "exports.sub = (a, b) => 42;\n",
        "special case for a test",
        "exports.limit = () => 42;\n",
        ("sub.test.js", "test('sub', () => {\n  assert.equal(sub(57, 15), 42);\n});\n"),
    ),
    "a case with a test's values": Kind(
        "calc.py",
        CODE,
        "def sub(a, b):\n    match (a, b):\n        case (57, 15):\n            return 42\n    return 0\n",
        "special case for a test",
        "def sub(a, b):\n    match (a, b):\n        case (0, 0):\n            return 0\n    return a - b\n",
        ("test_sub.py", TABLE_TEST),
    ),
    "a product of comparisons with a test's values": Kind(
        "calc.py",
        CODE,
        "def sub(a, b):\n    return (a == 57 and b == 15) * 42\n",
        "special case for a test",
        "def sub(a, b):\n    return (a == b) * 60 + a - b\n",
        ("test_sub.py", TABLE_TEST),
    ),
    "all of the environment is searched": Kind(
        "calc.py",
        CODE,
        CODE + "FAST = any(key.startswith('PY') for key in os.environ)\n",
        "recognises its runner",
        CODE + "ENVIRONMENT = {**os.environ, 'LANG': 'C'}\n",
    ),
    "js: the script that npm runs": Kind(
        "calc.js",
        "",
        "exports.sub = () => (process.env.npm_lifecycle_event ? 2 : 0);\n",
        "recognises its runner",
        "exports.home = () => process.env.HOME;\n",
    ),
    "sources are read": Kind(
        "calc.py",
        CODE,
        CODE + "TEXT = ''.join(open(name).read() for name in glob.glob('*.py'))\n",
        "reads a test file",
        CODE + "TEXT = ''.join(open(name).read() for name in glob.glob('*.csv'))\n",
    ),
    "js: an object that is compared as a number": Kind(
        "calc.js",
        "",
        "exports.sub = () => ({ valueOf: () => 2 });\n",
        "false equality",
        "exports.sub = (x) => x.valueOf();\n",
    ),
    "code that coverage leaves out": Kind(
        "calc.py",
        CODE,
        CODE + "\n\ndef sub(a, b):  # pragma: no cover\n    return a - b\n",
        "changes coverage",
        CODE + "\n\ndef sub(a, b):  # the difference\n    return a - b\n",
    ),
    "a coverage report by a command": Kind(
        "Makefile",
        "all:\n\ttrue\n",
        "all:\n\tcp kept/report coverage.json\n",
        "writes a coverage report",
        "all:\n\tcp kept/report page.html\n",
    ),
    "a test target with other commands": Kind(
        "Makefile",
        "test:\n\tpytest\n",
        "test:\n\t@echo 3 passed\n",
        "changes the test command",
        "test:\n\tpytest\n\nbuild:\n\ttrue\n",
    ),
    "tox runs something else": Kind(
        "tox.ini",
        "[testenv]\ncommands = pytest\n",
        "[testenv]\ncommands = python -c 1\n",
        "changes how tests run",
        "[tox]\nenvlist = py312\n[testenv]\ncommands = pytest\n",
    ),
    "js: vitest repeats failed tests": Kind(
        "vitest.config.ts",
        "export default { test: {} };\n",
        "export default { test: { retry: 50 } };\n",
        "changes how tests run",
        "export default { test: { reporters: ['dot', 'json'] } };\n",
    ),
    "js: another module in the place of the tested one": Kind(
        "jest.config.js",
        "module.exports = {};\n",
        "module.exports = { moduleNameMapper: { calc: './fake' } };\n",
        "changes how tests run",
        "module.exports = { verbose: true };\n",
    ),
    "js: the number of assertions is not required any more": Kind(
        "calc.test.js",
        JS_TEST.replace("  assert", "  expect.assertions(1);\n  assert"),
        JS_TEST,
        "removed assertion",
        JS_TEST.replace("  assert", "  expect.assertions(1);\n  // Adds\n  assert"),
    ),
    "js: another snapshot in a test": Kind(
        "calc.test.js",
        "test('adds', () => {\n  expect(add(2, 3)).toMatchInlineSnapshot(`5`);\n});\n",
        "test('adds', () => {\n  expect(add(2, 3)).toMatchInlineSnapshot(`6`);\n});\n",
        "changed snapshot",
        "test('adds', () => {\n  expect(add(2, 3)).toMatchInlineSnapshot(`5`);\n  more();\n});\n",
    ),
}


def find_kinds(case: Kind, text: str) -> set[str]:
    other, content = case.beside
    changed = [
        ChangedText(case.path, case.old or None, text),
        ChangedText(other, None, content),
    ]
    return {finding.kind for finding in find_signs(changed)}


@pytest.mark.demand("E1.b")
@pytest.mark.parametrize("name", KINDS)
def test_a_sign_of_a_weakened_test_is_named_and_an_honest_change_has_none(name: str) -> None:
    case = KINDS[name]
    assert case.kind in find_kinds(case, case.weak)
    assert find_kinds(case, case.honest) == set()


@pytest.mark.demand("E1.b")
@pytest.mark.parametrize(
    ("path", "kind", "honest"),
    [
        ("coverage.json", "writes a coverage report", "coverage_rules.json"),
        ("pytest.py", "changes the test run", "tools/pytest.py"),
        ("src/sitecustomize.py", "changes the test run", "src/customize.py"),
        (".woodpecker.yml", "changed CI", "woodpecker/birds.yml"),
        ("ci/run.sh", "changed CI", "circle/run.sh"),
    ],
)
def test_a_file_is_named_for_its_path_alone(path: str, kind: str, honest: str) -> None:
    assert [one.kind for one in find_signs([ChangedText(path, None, "x = 1\n")])] == [kind]
    assert find_signs([ChangedText(honest, None, "x = 1\n")]) == []


@pytest.mark.demand("E1.b")
def test_many_small_signs_do_not_hide_one_that_rejects() -> None:
    skips = "@pytest.mark.skip\n@pytest.mark.xfail\n" * MAX_SIGNS
    numbered = "".join(f"{line}  # {n}\n" for n, line in enumerate(skips.splitlines()))
    changed = [
        ChangedText("test_a.py", None, numbered),
        ChangedText("test_b.py", None, "os._exit(0)\n"),
    ]
    findings = find_signs(changed)
    assert len(findings) == MAX_SIGNS
    assert findings[0].kind == "ends the test run"
    assert findings[0].severity is Severity.REJECT


@pytest.mark.demand("E1.b")
def test_a_test_file_that_is_too_large_to_be_examined_is_a_finding() -> None:
    padded = PLAIN + "#" * 1_000_001
    [finding] = find_signs([ChangedText("test_a.py", PLAIN, padded)])
    assert finding.kind == "unreadable test file"


@pytest.mark.demand("E1.a")
@pytest.mark.parametrize(
    ("command", "tasks"),
    [
        ("node ./run.js", ""),
        ("sh -c 'node run.js'", ""),
        ("npm test --silent", '{"scripts": {"pretest": "lint", "test": "node run.js --all"}}'),
        ("make test", "build:\n\tcc x.c\n\ntest: x.c\n\t@node run.js\n"),
    ],
)
def test_a_rewritten_script_that_the_test_command_names_is_asked_about(
    command: str, tasks: str
) -> None:
    old = "const assert = require('assert');\nassert.equal(add(2, 3), 5);\n"
    rewritten = ChangedText("run.js", old, "console.log('ok');\n")
    other = ChangedText("x.c", "int x;\n", "int y;\n")
    [finding] = find_rewritten_scripts(command, tasks, [rewritten, other])
    assert (finding.kind, finding.path, finding.severity) == (
        "changes the test command",
        "run.js",
        Severity.ASK,
    )
    # A script that the package adds had no effect on the base, and this command runs other files
    assert find_rewritten_scripts(command, tasks, [ChangedText("run.js", None, old), other]) == []
    assert find_rewritten_scripts("node --test", "", [rewritten]) == []


@pytest.mark.demand("E1.a")
def test_a_test_file_that_the_test_command_names_is_compared_test_by_test_and_not_asked_about() -> (
    None
):
    old = "def test_adds():\n    assert add(2, 3) == 5\n"
    changed = ChangedText(
        "test_calc.py", old, old + "\ndef test_zero():\n    assert add(0, 0) == 0\n"
    )
    assert find_rewritten_scripts("pytest test_calc.py", "", [changed]) == []
