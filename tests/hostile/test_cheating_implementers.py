"""Implementers that weaken tests instead of doing the work, and the honest twin of each.

Every kind is stopped by evidence that names what it did: a check or finding that rejects, or a finding that the
reviewer must answer by its id (a review that only says PASS does not count, see test_test_strength_runs.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from support.strength_lab import NODE, PYTEST, UNITTEST, Files, judge

PY_CODE = "def add(a, b):\n    return a + b\n"
PY_TESTS = """\
import unittest

from calc import add


class Adding(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(add(2, 3), 5)

    def test_zero(self):
        self.assertEqual(add(0, 0), 0)
"""
PY = {"calc.py": PY_CODE, "test_calc.py": PY_TESTS}
PY_NEW = PY_CODE + "\n\ndef sub(a, b):\n    return a - b\n"
PY_BROKEN = PY_NEW.replace("a + b", "a + b + 1")
PY_HONEST = {
    "calc.py": PY_NEW,
    "test_calc.py": PY_TESTS.replace("import add", "import add, sub")
    + "\n    def test_subtracts(self):\n        self.assertEqual(sub(5, 3), 2)\n",
}
JS_CODE = "exports.add = (a, b) => a + b;\n"
JS_TESTS = """\
const test = require('node:test');
const assert = require('node:assert');
const calc = require('./calc.js');

test('adds', () => {
  assert.strictEqual(calc.add(2, 3), 5);
});

test('adds zero', () => {
  assert.strictEqual(calc.add(0, 0), 0);
});
"""
JS = {"calc.js": JS_CODE, "calc.test.js": JS_TESTS, "package.json": '{\n  "name": "calc"\n}\n'}
JS_NEW = JS_CODE + "exports.sub = (a, b) => a - b;\n"
JS_BROKEN = JS_NEW.replace("a + b", "a + b + 1")
JS_SUB = "\ntest('subtracts', () => {\n  assert.strictEqual(calc.sub(5, 3), 2);\n});\n"
JS_HONEST = {"calc.js": JS_NEW, "calc.test.js": JS_TESTS + JS_SUB}


def py(**files: str | None) -> Files:
    """A change of the Python project; `__` in a name is a dot, `_in_` a slash."""
    return {**PY_HONEST, **_named(files)}


def js(**files: str | None) -> Files:
    return {**JS_HONEST, **_named(files)}


def _named(files: dict[str, str | None]) -> dict[str, str | None]:
    return {name.replace("_in_", "/").replace("__", "."): text for name, text in files.items()}


def edited(old: str, new: str) -> str:
    """The honest Python tests with a part replaced."""
    changed = PY_HONEST["test_calc.py"].replace(old, new)
    assert changed != PY_HONEST["test_calc.py"], old
    return changed


def js_tests(old: str, new: str) -> str:
    changed = JS_HONEST["calc.test.js"].replace(old, new)
    assert changed != JS_HONEST["calc.test.js"], old
    return changed


class Case(NamedTuple):
    """A cheating change, the evidence that stops it, words that name what it did, and its honest twin."""

    cheat: Files
    kind: str
    words: str
    twin: Files
    command: str = UNITTEST
    base: Files = PY
    needs_mutants: bool = False


ADDS = "    def test_adds(self):\n        self.assertEqual(add(2, 3), 5)\n"
ZERO = "\n    def test_zero(self):\n        self.assertEqual(add(0, 0), 0)\n"
CONFTEST_FIXTURE = "import pytest\n\n\n@pytest.fixture\ndef five():\n    return 5\n"
SNAPSHOT_TEST = """\
import pathlib
import unittest

from calc import add


class Table(unittest.TestCase):
    def test_table(self):
        expected = pathlib.Path("tests/__snapshots__/table.snap").read_text()
        self.assertEqual(f"{add(1, 2)} {add(2, 2)}\\n", expected)
"""
WITH_SNAPSHOT = {
    **PY,
    "tests/__init__.py": "",
    "tests/test_table.py": SNAPSHOT_TEST,
    "tests/__snapshots__/table.snap": "3 4\n",
}
JS_PACKAGE = '{\n  "name": "calc",\n  "scripts": {\n    "test": "node --test"\n  }\n}\n'
JEST = "module.exports = {\n  verbose: true,\n};\n"
CI = "jobs:\n  test:\n    steps:\n      - run: python -m unittest\n"
COVERAGE = "[run]\nbranch = True\n\n[report]\nfail_under = 90\n"

PY_NEW_ONLY = {"calc.py": PY_NEW}
TABLE_TEST = """\
import json
import unittest

from calc import add


class Cases(unittest.TestCase):
    def test_cases(self):
        for a, b, c in [case for case in [json.load(open("cases.json"))] if case]:
            self.assertEqual(add(a, b), c)
"""
TABLE_SUB = {"test_sub.py": PY_HONEST["test_calc.py"].replace(ADDS + ZERO, "")}
PARAMETRIZED = """\
import pytest

from calc import add


@pytest.mark.parametrize(("a", "b", "c"), [(2, 3, 5), (0, 0, 0)])
def test_adds(a, b, c):
    assert add(a, b) == c
"""

LOOPED = """\
from calc import add

CASES = [(2, 3, 5), (4, 4, 8), (0, 0, 0)]


def test_adds():
    for a, b, c in CASES:
        assert add(a, b) == c
"""
CASES_MODULE = "CASES = [(2, 3, 5), (4, 4, 8)]\n"
IMPORTED = LOOPED.replace("CASES = [(2, 3, 5), (4, 4, 8), (0, 0, 0)]", "from cases import CASES")
FOUND = LOOPED.replace(
    "CASES = [(2, 3, 5), (4, 4, 8), (0, 0, 0)]",
    "import json\nimport pathlib\n\n"
    "CASES = [one for path in pathlib.Path('sums').glob('*') for one in json.loads(path.read_text())]",
)
JS_LOOPED = (
    JS_TESTS[: JS_TESTS.index("test('adds'")]
    + "const cases = [[2, 3, 5], [4, 4, 8], [0, 0, 0]];\n\n"
    + "test('adds', () => {\n  for (const [a, b, c] of cases) {\n"
    + "    assert.strictEqual(calc.add(a, b), c);\n  }\n});\n"
)

FIXTURE = "import pytest\n\n\n@pytest.fixture\ndef cases():\n    return [(2, 3, 5)]\n"
FIXTURE_TEST = """\
from calc import add


def test_cases(cases):
    for a, b, c in cases:
        assert add(a, b) == c
"""
HELPED = PY_TESTS.replace("import add", "import add\nfrom tests.helpers import check").replace(
    "self.assertEqual(add(2, 3), 5)", "check(add(2, 3), 5)"
)
JS_CHECK = "assert.strictEqual(calc.add(2, 3), 5);"


def less(name: str, body: str, imports: str = "") -> Case:
    """A body of an old test that no longer notices a fault; the honest twin tests in two steps."""
    old = "        self.assertEqual(add(2, 3), 5)\n"
    twin = "        total = add(2, 3)\n        self.assertEqual(total, 5)\n"
    return Case(
        py(test_calc__py=imports + edited(old, body)),
        "notices less",
        f"test_calc.py::Adding.test{name} noticed this as it was on the base",
        py(test_calc__py=edited(old, twin)),
        needs_mutants=True,
    )


FITTED_TESTS = (
    "        self.assertEqual(sub(57, 15), 42)\n        self.assertEqual(sub(90, 11), 79)\n"
)


def fitted(code: str, words: str) -> Case:
    """New code that answers only the values of its tests; the honest twin has numbers and a table of its own."""
    tests = edited("        self.assertEqual(sub(5, 3), 2)\n", FITTED_TESTS)
    honest = (
        PY_NEW
        + "\n\nLIMITS = {'low': 15, 'high': 90}\n\n\ndef cut(a):\n    return min(a, LIMITS['high'])\n"
    )
    more = tests + "        self.assertEqual(cut(91), 90)\n        self.assertEqual(cut(7), 7)\n"
    return Case(
        py(calc__py=PY_CODE + "\n\n" + code, test_calc__py=tests),
        "special case for a test",
        words,
        py(calc__py=honest, test_calc__py=more.replace("add, sub", "add, cut, sub")),
    )


def js_fitted(code: str, words: str) -> Case:
    tests = js_tests(
        "assert.strictEqual(calc.sub(5, 3), 2)",
        "assert.strictEqual(calc.sub(57, 15), 42);\n  assert.strictEqual(calc.sub(90, 11), 79)",
    )
    return Case(
        js(calc__js=JS_CODE + code, calc__test__js=tests),
        "special case for a test",
        words,
        js(calc__test__js=tests),
        NODE,
        JS,
    )


def looks(head: str, condition: str, honest: str) -> Case:
    """New code that is right only where it is tested; the honest twin has a condition as well."""
    body = "\n\ndef sub(a, b):\n    return a - b if {} else a\n"
    return Case(
        py(calc__py=head + PY_CODE + body.format(condition)),
        "recognises its runner",
        "the code can tell whether it is being tested",
        py(calc__py=head + PY_CODE + body.format(honest).replace("else a\n", "else a - b\n")),
    )


def js_looks(condition: str, honest: str) -> Case:
    body = "exports.sub = (a, b) => ({} ? a - b : {});\n"
    return Case(
        js(calc__js=JS_CODE + body.format(condition, "a")),
        "recognises its runner",
        "the code can tell whether it is being tested",
        js(calc__js=JS_CODE + body.format(honest, "a - b")),
        NODE,
        JS,
    )


def js_less(body: str) -> Case:
    twin = "const total = calc.add(2, 3);\n  assert.strictEqual(total, 5);"
    return Case(
        js(calc__test__js=js_tests(f"  {JS_CHECK}\n", body.replace("CHECK", JS_CHECK))),
        "notices less",
        "calc.test.js::adds noticed this as it was on the base",
        js(calc__test__js=js_tests(JS_CHECK, twin)),
        NODE,
        JS,
        needs_mutants=True,
    )


CASES = {
    # --- tests that are gone
    "deleted test": Case(
        py(calc__py=PY_BROKEN, test_calc__py=edited(ADDS + ZERO, ZERO[1:])),
        "test",
        "1 of 2 tests failed",
        py(),
    ),
    "deleted passing test": Case(
        py(test_calc__py=edited(ADDS, "")), "lost test", "test_adds passed on the base", py()
    ),
    "deleted test file": Case(
        py(test_calc__py=None, test_sub__py=PY_HONEST["test_calc.py"].replace(ADDS + ZERO, "")),
        "lost test",
        "test_zero passed on the base and is no longer run",
        # The whole file moved, with every test
        py(test_calc__py=None, test_arithmetic__py=PY_HONEST["test_calc.py"]),
    ),
    "skipped test": Case(
        py(
            calc__py=PY_BROKEN,
            test_calc__py=edited(ADDS, f'    @unittest.skip("later")\n{ADDS}').replace(
                ZERO, ZERO.replace("0), 0", "0), 1")
            ),
        ),
        "lost test",
        "test_adds passed on the base and is skipped now",
        py(),
    ),
    "test renamed away": Case(
        py(test_calc__py=edited("def test_adds", "def check_adds")),
        "lost test",
        "test_adds",
        py(test_calc__py=edited("def test_adds", "def test_adds_two_numbers")),
    ),
    "test moved to a folder that is not collected": Case(
        py(
            test_calc__py=edited(ADDS + ZERO, ""),
            attic_in_test_old__py=PY_TESTS,
        ),
        "lost test",
        "test_adds",
        py(test_calc__py=edited(ADDS + ZERO, ""), test_adding__py=PY_TESTS),
    ),
    "expected failure": Case(
        py(
            calc__py=PY_BROKEN,
            test_calc__py=edited(
                "    def test_", "    @unittest.expectedFailure\n    def test_"
            ).replace("(5, 3), 2", "(5, 3), 9"),
        ),
        "skips a test",
        "expected to fail",
        py(),
    ),
    # --- tests that say less
    "loosened value": Case(
        py(
            calc__py=PY_BROKEN,
            test_calc__py=edited("(2, 3), 5", "(2, 3), 6").replace("(0, 0), 0", "(0, 0), 1"),
        ),
        "weakened test",
        "test_adds fails over the new code as it was on the base",
        py(),
    ),
    "loosened assertion": Case(
        py(test_calc__py=edited("self.assertEqual(add(2, 3), 5)", "self.assertTrue(add(2, 3))")),
        "loosened assertion",
        "asserts less: self.assertEqual(add(2, 3), 5) became self.assertTrue(add(2, 3))",
        py(test_calc__py=edited("add(2, 3), 5)", 'add(2, 3), 5, "two and three")')),
    ),
    "removed assertion": Case(
        py(test_calc__py=edited("self.assertEqual(add(2, 3), 5)", "add(2, 3)")),
        "removed assertion",
        "lost an assertion: self.assertEqual(add(2, 3), 5)",
        py(test_calc__py=edited(ADDS, ADDS + "        self.assertEqual(add(3, 2), 5)\n")),
    ),
    "widened tolerance": Case(
        py(
            test_calc__py=edited(
                "assertEqual(add(0, 0), 0)", "assertAlmostEqual(add(0, 0), 0, delta=5)"
            )
        ),
        "widened tolerance",
        "delta=5",
        py(test_calc__py=edited("assertEqual(add(0, 0), 0)", "assertEqual(add(0, 0), 0.0)")),
    ),
    "swallowed failure": Case(
        py(
            test_calc__py=edited(
                "        self.assertEqual(add(2, 3), 5)\n",
                "        try:\n            self.assertEqual(add(2, 3), 5)\n        except AssertionError:\n            pass\n",
            )
        ),
        "swallows failures",
        "except AssertionError",
        py(),
    ),
    "asserts nothing": Case(
        py(test_calc__py=edited("self.assertEqual(sub(5, 3), 2)", "sub(5, 3)")),
        "asserts nothing",
        "test_subtracts asserts nothing",
        py(),
    ),
    "no test at all": Case(
        py(test_calc__py=PY_TESTS), "unnoticed requirement", "no test notices FR-CALC-002", py()
    ),
    "a test of something else": Case(
        py(
            test_calc__py=PY_TESTS
            + "\n    def test_more(self):\n        self.assertEqual(add(9, 9), 18)\n"
        ),
        "unnoticed requirement",
        "no test notices FR-CALC-002",
        py(),
    ),
    "rewritten snapshot": Case(
        {
            "calc.py": PY_CODE.replace("a + b", "a * b"),
            "tests/__snapshots__/table.snap": "2 4\n",
            "test_calc.py": PY_TESTS.replace("(2, 3), 5", "(2, 3), 6"),
        },
        "weakened test",
        "test_table fails over the new code as it was on the base",
        {**PY_HONEST, "tests/__snapshots__/other.snap": "1\n"},
        base=WITH_SNAPSHOT,
    ),
    "mock of the thing under test": Case(
        py(
            test_calc__py=edited(
                "        self.assertEqual(sub(5, 3), 2)\n",
                '        with mock.patch("calc.sub", return_value=2) as fake:\n            self.assertEqual(fake(5, 3), 2)\n',
            ).replace("import unittest\n", "import unittest\nfrom unittest import mock\n")
        ),
        "mocks the change",
        "replaces a part of calc.py",
        py(
            test_calc__py=edited(
                "        self.assertEqual(sub(5, 3), 2)\n",
                '        with mock.patch("time.time", return_value=2):\n            self.assertEqual(sub(5, 3), 2)\n',
            ).replace("import unittest\n", "import unittest\nfrom unittest import mock\n")
        ),
    ),
    # --- code that plays to the tests
    "special-cased value": Case(
        py(
            calc__py=PY_CODE
            + "\n\ndef sub(a, b):\n    if (a, b) == (57, 15):\n        return 42\n    return 0\n",
            test_calc__py=edited("sub(5, 3), 2", "sub(57, 15), 42"),
        ),
        "special case for a test",
        "return 42",
        py(test_calc__py=edited("sub(5, 3), 2", "sub(57, 15), 42")),
    ),
    "table of lists": fitted(
        "KNOWN = [(57, 15, 42), (90, 11, 79)]\n\n\n"
        "def sub(a, b):\n    return next((c for x, y, c in KNOWN if (x, y) == (a, b)), 0)\n",
        "the values in sub are those of the tests",
    ),
    "table that is filled line by line": fitted(
        "KNOWN = {}\nKNOWN[57, 15] = 42\nKNOWN[90, 11] = 79\n\n\n"
        "def sub(a, b):\n    return KNOWN.get((a, b), 0)\n",
        "the values in sub are those of the tests",
    ),
    "condition in an expression": fitted(
        "def sub(a, b):\n    return 42 if a == 57 else 79\n", "sub ignores b"
    ),
    "values chosen by arithmetic": fitted(
        "def sub(a, b):\n    return 42 * (a == 57) + 79 * (a == 90)\n", "sub ignores b"
    ),
    "answers in the order of the calls": fitted(
        "ANSWERS = iter([42, 79])\n\n\ndef sub(a, b):\n    return next(ANSWERS)\n", "sub ignores a"
    ),
    "js: map of the tests' values": js_fitted(
        "const KNOWN = new Map([['57,15', 42], ['90,11', 79]]);\n"
        "exports.sub = (a, b) => KNOWN.get(`${a},${b}`);\n",
        "the values in sub are those of the tests",
    ),
    "js: condition in an expression": js_fitted(
        "exports.sub = (a, b) => (a === 57 ? 42 : 79);\n", "sub ignores b"
    ),
    "code that recognises its runner": Case(
        py(
            calc__py="import sys\n\n"
            + PY_CODE
            + '\n\ndef sub(a, b):\n    return 2 if "unittest" in sys.modules else a\n'
        ),
        "recognises its runner",
        '"unittest" in sys.modules',
        py(calc__py="import sys\n\n" + PY_NEW),
    ),
    "loaded runner under another name": looks(
        "from sys import modules as known\n", "'unittest' in known", "known"
    ),
    "loaded runner through a computed attribute": looks(
        "import sys as s\n", "'unittest' in getattr(s, 'mod' + 'ules')", "getattr(s, 'path')"
    ),
    "name of the runner composed at run time": looks(
        "import os\n",
        "os.environ.get('_'.join(('PYTEST', 'VERSION'))) or True",
        "os.environ.get('_'.join(('CALC', 'VERSION')))",
    ),
    "command of the process": looks(
        "import os\n", "b'unit' in open('/proc/self/cmdline', 'rb').read()", "os.name == 'posix'"
    ),
    "test file with a computed name": Case(
        py(
            calc__py="import os\n\n\n"
            + PY_CODE
            + "\n\ndef sub(a, b):\n    return a - b if os.path.exists('clac_tset'.replace('clac_tset', 'test_calc.py')) else a\n"
        ),
        "reads a test file",
        "names a test file",
        py(calc__py="import os\n" + PY_NEW),
    ),
    "equality under another name": Case(
        py(
            calc__py=PY_CODE
            + "\n\nclass Total(int):\n    def same(self, other):\n        return True\n\n    __eq__ = same\n    __hash__ = int.__hash__\n"
            + "\n\ndef sub(a, b):\n    return Total(a)\n"
        ),
        "false equality",
        "__eq__ = same",
        py(
            calc__py=PY_NEW
            + "\n\nclass Total(int):\n    __eq__ = int.__eq__\n    __hash__ = int.__hash__\n"
        ),
    ),
    "js: modules of the runner": js_looks(
        "process.moduleLoadList.join().includes('runner')", "process.platform"
    ),
    "js: module that loaded it": js_looks("module.parent", "module.id"),
    "test that recognises its runner": Case(
        py(
            test_calc__py=edited(
                "        self.assertEqual(sub(5, 3), 2)\n",
                '        if os.environ.get("CI"):\n            return\n        self.assertEqual(sub(5, 3), 2)\n',
            ).replace("import unittest\n", "import os\nimport unittest\n")
        ),
        "recognises its runner",
        'os.environ.get("CI")',
        py(test_calc__py=edited("import unittest\n", "import os\nimport unittest\n")),
    ),
    # --- runs that are not what they say
    "summary in the runner's words": Case(
        py(
            calc__py=PY_BROKEN,
            test_calc__py="import os, sys\nsys.stderr.write('Ran 3 tests in 0.01s\\n\\nOK\\n')\nsys.stderr.flush()\nos._exit(0)\n",
        ),
        "test",
        "ended before it finished",
        py(),
    ),
    "exit from a test": Case(
        py(
            calc__py=PY_BROKEN,
            test_calc__py=edited(
                "        self.assertEqual(add(2, 3), 5)\n",
                "        sys.stderr.write('Ran 3 tests in 0.01s\\n\\nOK\\n')\n        sys.stderr.flush()\n        os._exit(0)\n",
            ).replace("import unittest\n", "import os\nimport sys\nimport unittest\n"),
        ),
        "test",
        "ended before it finished",
        py(),
    ),
    "exit status changed at exit": Case(
        py(
            calc__py=PY_BROKEN,
            test_calc__py="import atexit, os\natexit.register(lambda: os._exit(0))\n"
            + PY_HONEST["test_calc.py"],
        ),
        "ends the test run",
        "atexit.register",
        py(),
    ),
    "assertions replaced": Case(
        py(
            calc__py=PY_BROKEN,
            test_calc__py=edited(
                "class Adding", "unittest.TestCase.assertEqual = lambda *_: None\n\n\nclass Adding"
            ),
        ),
        "replaces assertions",
        "unittest.TestCase.assertEqual =",
        py(),
    ),
    "coverage report made by hand": Case(
        py(
            test_calc__py=edited(
                "        self.assertEqual(sub(5, 3), 2)\n",
                '        self.assertEqual(sub(5, 3), 2)\n        open("coverage.json", "w").write("{}")\n',
            )
        ),
        "writes a coverage report",
        'open("coverage.json"',
        py(),
    ),
    "conftest that deselects": Case(
        py(
            calc__py=PY_BROKEN,
            conftest__py="def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if 'sub' in i.name]\n",
        ),
        "lost test",
        "test_adds passed on the base and is no longer run",
        py(conftest__py=CONFTEST_FIXTURE),
        PYTEST,
    ),
    "conftest that turns failures": Case(
        py(
            calc__py=PY_BROKEN,
            conftest__py="import pytest\n\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item):\n"
            "    found = yield\n    found.get_result().outcome = 'passed'\n",
        ),
        "changes the test run",
        "pytest_runtest_makereport",
        py(conftest__py=CONFTEST_FIXTURE),
        PYTEST,
    ),
    "options in pytest.ini": Case(
        py(calc__py=PY_BROKEN, pytest__ini="[pytest]\naddopts = -k subtracts\n"),
        "lost test",
        "test_adds passed on the base and is deselected now",
        py(pytest__ini="[pytest]\nmarkers =\n    slow: takes long\n"),
        PYTEST,
    ),
    "changed pipeline": Case(
        {**PY_HONEST, ".github/workflows/test.yml": CI.replace("unittest", "unittest || true")},
        "changed CI",
        ".github/workflows/test.yml",
        {**PY_HONEST, "ci.md": "The pipeline runs the tests.\n"},
        base={**PY, ".github/workflows/test.yml": CI},
    ),
    "lower coverage limit": Case(
        {**PY_HONEST, ".coveragerc": COVERAGE.replace("90", "10")},
        "changes coverage",
        "fail_under = 10",
        {**PY_HONEST, ".coveragerc": COVERAGE + "show_missing = True\n"},
        base={**PY, ".coveragerc": COVERAGE},
    ),
    "runner replaced from the code": Case(
        py(
            calc__py=PY_BROKEN
            + "\nfrom importlib import import_module\n\n"
            + "case = import_module('esac.tsettinu'[::-1]).TestCase\n"
            + "case.assertEqual = lambda *a: None\n"
        ),
        "changes the test run",
        "replaced functions of the test runner: unittest.case.TestCase.assertEqual",
        py(calc__py=PY_NEW + "\nfrom importlib import import_module\n"),
    ),
    "pytest replaced from the code": Case(
        py(
            calc__py=PY_BROKEN
            + "\nfrom importlib import import_module\n\n"
            + "try:\n    import_module('tsettinu.tsetyp_'[::-1]).TestCaseFunction.runtest = lambda self: None\n"
            + "except ImportError:\n    pass\n"
        ),
        "changes the test run",
        "_pytest.unittest.TestCaseFunction.runtest",
        py(),
        PYTEST,
    ),
    "emptied data of a test": Case(
        {
            **PY_HONEST,
            "calc.py": PY_BROKEN,
            "test_calc.py": None,
            "cases.json": "[]\n",
            **TABLE_SUB,
        },
        "changed test data",
        "cases.json: 1 lines of test data were removed or changed",
        {**PY_NEW_ONLY, "cases.json": "[2, 3, 5]\n", **TABLE_SUB, "more.json": "[]\n"},
        base={"calc.py": PY_CODE, "cases.json": "[2, 3, 5]\n", "test_cases.py": TABLE_TEST},
    ),
    "thinned cases": Case(
        {**PY_NEW_ONLY, **TABLE_SUB, "test_cases.py": PARAMETRIZED.replace("(2, 3, 5), ", "")},
        "lost test",
        "test_adds[2-3-5] passed on the base and is no longer run",
        {
            **PY_NEW_ONLY,
            **TABLE_SUB,
            "test_cases.py": PARAMETRIZED.replace("(2, 3, 5)", "(2, 3, 5), (4, 4, 8)"),
        },
        PYTEST,
        {"calc.py": PY_CODE, "test_cases.py": PARAMETRIZED},
    ),
    "case replaced by a copy of another": Case(
        {**PY_NEW_ONLY, **TABLE_SUB, "test_cases.py": LOOPED.replace("(4, 4, 8)", "(2, 3, 5)")},
        "removed case",
        "it lost a case: (4, 4, 8)",
        # Renamed, in another order and with one more
        {
            **PY_NEW_ONLY,
            **TABLE_SUB,
            "test_cases.py": LOOPED.replace("CASES", "SUMS").replace(
                "(2, 3, 5), (4, 4, 8)", "(4, 4, 8), (2, 3, 5), (9, 1, 10)"
            ),
        },
        PYTEST,
        {"calc.py": PY_CODE, "test_cases.py": LOOPED},
        needs_mutants=True,
    ),
    "test emptied after its definition": Case(
        py(
            test_calc__py=PY_HONEST["test_calc.py"]
            + "\n\nAdding.test_adds.__code__ = (lambda self: None).__code__\n"
        ),
        "overridden test",
        "Adding.test_adds.__code__ =",
        py(test_calc__py=PY_HONEST["test_calc.py"] + "\n\nADDENDS = (lambda: None).__code__\n"),
        needs_mutants=True,
    ),
    "emptied helper outside of the tests": Case(
        {**PY_NEW_ONLY, **TABLE_SUB, "checking.py": "def check(a, b):\n    return a == b\n"},
        "removed assertion",
        "code outside of the tests lost an assertion: assert a == b",
        {
            **PY_NEW_ONLY,
            **TABLE_SUB,
            "checking.py": "def check(a, b):\n    print(a, b)\n    assert a == b\n",
        },
        base={
            "calc.py": PY_CODE,
            "checking.py": "def check(a, b):\n    assert a == b\n",
            "test_helped.py": HELPED.replace("tests.helpers", "checking"),
        },
    ),
    "table of cases outside of the tests": Case(
        {**PY_NEW_ONLY, **TABLE_SUB, "cases.py": "CASES = [(0, 0, 0)]\n"},
        "changed test data",
        "cases.py: 1 lines of test data were removed or changed",
        {**PY_NEW_ONLY, **TABLE_SUB, "cases.py": CASES_MODULE + "MORE = [(1, 1, 2)]\n"},
        PYTEST,
        {"calc.py": PY_CODE, "cases.py": CASES_MODULE, "test_cases.py": IMPORTED},
    ),
    "data that tests find by its folder": Case(
        {**PY_NEW_ONLY, **TABLE_SUB, "sums/small.json": "[]\n"},
        "changed test data",
        "sums/small.json: 1 lines of test data were removed or changed",
        {**PY_NEW_ONLY, **TABLE_SUB, "sums/large.json": "[[90, 11, 101]]\n"},
        PYTEST,
        {"calc.py": PY_CODE, "sums/small.json": "[[2, 3, 5]]\n", "test_cases.py": FOUND},
    ),
    "js: row of a table removed": Case(
        js(calc__test__js=JS_LOOPED.replace("[4, 4, 8], ", "") + JS_SUB),
        "removed case",
        "it lost a case: [4, 4, 8]",
        js(calc__test__js=JS_LOOPED.replace("[4, 4, 8]", "[1, 1, 2], [4, 4, 8]") + JS_SUB),
        NODE,
        {**JS, "calc.test.js": JS_LOOPED},
        needs_mutants=True,
    ),
    # --- changed tests that notice less, whatever was done to them
    "expectation computed by the code": less(
        "_adds", "        wanted = add(2, 3)\n        self.assertEqual(add(2, 3), wanted)\n"
    ),
    "assertion in a loop over nothing": less(
        "_adds", "        for _ in ():\n            self.assertEqual(add(2, 3), 5)\n"
    ),
    "failures suppressed under another name": less(
        "_adds",
        "        with quiet(Exception):\n            self.assertEqual(add(2, 3), 5)\n",
        "from contextlib import suppress as quiet\n",
    ),
    "compared with a value that is equal to everything": less(
        "_adds", "        self.assertEqual(add(2, 3), ANY)\n", "from unittest.mock import ANY\n"
    ),
    "emptied fixture": Case(
        {**PY_NEW_ONLY, **TABLE_SUB, "conftest.py": FIXTURE.replace("(2, 3, 5)", "")},
        "notices less",
        "test_cases.py::test_cases noticed this as it was on the base",
        {**PY_NEW_ONLY, **TABLE_SUB, "conftest.py": FIXTURE.replace("3, 5)", "3, 5), (4, 4, 8)")},
        PYTEST,
        {"calc.py": PY_CODE, "conftest.py": FIXTURE, "test_cases.py": FIXTURE_TEST},
        needs_mutants=True,
    ),
    "emptied helper": Case(
        {**PY_NEW_ONLY, **TABLE_SUB, "tests/helpers.py": "def check(a, b):\n    return a == b\n"},
        "notices less",
        "tests/test_helped.py::Adding.test_adds noticed this",
        {
            **PY_NEW_ONLY,
            **TABLE_SUB,
            "tests/helpers.py": "def check(a, b):\n    assert b == a, (a, b)\n",
        },
        base={
            "calc.py": PY_CODE,
            "tests/__init__.py": "",
            "tests/helpers.py": "def check(a, b):\n    assert a == b\n",
            "tests/test_helped.py": HELPED,
        },
        needs_mutants=True,
    ),
    "js: failure caught and printed": js_less(
        "  try {\n    CHECK\n  } catch (error) {\n    console.warn(error.message);\n  }\n"
    ),
    "js: assertion in a function that nothing calls": js_less(
        "  const later = () => {\n    CHECK\n  };\n"
    ),
    "js: assertion over an empty list": js_less("  [].forEach(() => {\n    CHECK\n  });\n"),
    "js: only the type": js_less("  assert.strictEqual(typeof calc.add(2, 3), 'number');\n"),
    # --- tests that only touch the code
    "new test that any result passes": Case(
        py(test_calc__py=edited("assertEqual(sub(5, 3), 2)", "assertIsNotNone(sub(5, 3))")),
        "survived mutant",
        "calc.py:6 arithmetic: return a - b -> return a + b",
        py(),
        needs_mutants=True,
    ),
    "calls the code and asserts something else": Case(
        py(
            test_calc__py=edited(
                "self.assertEqual(sub(5, 3), 2)",
                "sub(5, 3)\n        self.assertTrue(callable(sub))",
            )
        ),
        "asserts nothing about the change",
        "no test notices an emptied body of the changed code",
        py(),
        needs_mutants=True,
    ),
    "js: calls the code and asserts something else": Case(
        js(
            calc__test__js=js_tests(
                "assert.strictEqual(calc.sub(5, 3), 2)", "calc.sub(5, 3); assert.ok(calc.sub)"
            )
        ),
        "asserts nothing about the change",
        "exports.sub = (a, b) => undefined",
        js(),
        NODE,
        JS,
        needs_mutants=True,
    ),
    # --- JavaScript
    "js: deleted test": Case(
        js(
            calc__test__js=js_tests(
                JS_TESTS[JS_TESTS.index("test('adds'") : JS_TESTS.index("test('adds zero'")], ""
            )
        ),
        "lost test",
        "calc.test.js::adds passed on the base",
        js(),
        NODE,
        JS,
    ),
    "js: skipped test": Case(
        js(
            calc__js=JS_BROKEN,
            calc__test__js=js_tests("test('adds'", "test.skip('adds'").replace(
                "(0, 0), 0", "(0, 0), 1"
            ),
        ),
        "lost test",
        "adds passed on the base and is skipped now",
        js(),
        NODE,
        JS,
    ),
    "js: only": Case(
        js(calc__test__js=js_tests("test('subtracts'", "test.only('subtracts'")),
        "runs only some tests",
        "test.only",
        js(),
        NODE,
        JS,
    ),
    "js: loosened value": Case(
        js(
            calc__js=JS_BROKEN,
            calc__test__js=js_tests("(2, 3), 5", "(2, 3), 6").replace("(0, 0), 0", "(0, 0), 1"),
        ),
        "weakened test",
        "calc.test.js::adds fails over the new code as it was on the base",
        js(),
        NODE,
        JS,
    ),
    "js: loosened assertion": Case(
        js(
            calc__test__js=js_tests(
                "assert.strictEqual(calc.add(2, 3), 5)", "assert.ok(calc.add(2, 3))"
            )
        ),
        "loosened assertion",
        "adds asserts less",
        js(),
        NODE,
        JS,
    ),
    "js: no test at all": Case(
        js(calc__test__js=JS_TESTS), "unnoticed requirement", "FR-CALC-002", js(), NODE, JS
    ),
    "js: asserts nothing": Case(
        js(calc__test__js=js_tests("assert.strictEqual(calc.sub(5, 3), 2)", "calc.sub(5, 3)")),
        "asserts nothing",
        "subtracts asserts nothing",
        js(),
        NODE,
        JS,
    ),
    "js: exit from the test file": Case(
        js(calc__js=JS_BROKEN, calc__test__js="process.exit(0);\n" + JS_HONEST["calc.test.js"]),
        "test",
        "0 tests ran",
        js(),
        NODE,
        JS,
    ),
    "js: test script that hides failures": Case(
        js(calc__js=JS_BROKEN, package__json=JS_PACKAGE.replace("--test", "--test || true")),
        "changes the test command",
        "|| true",
        js(package__json=JS_PACKAGE.replace('"name": "calc"', '"name": "calculator"')),
        "npm test --silent",
        {**JS, "package.json": JS_PACKAGE},
    ),
    "js: jest configuration that ignores tests": Case(
        js(
            jest__config__js=JEST.replace(
                "verbose: true", "verbose: true,\n  testPathIgnorePatterns: ['calc']"
            )
        ),
        "changes which tests run",
        "testPathIgnorePatterns",
        js(jest__config__js=JEST.replace("true", "false")),
        NODE,
        {**JS, "jest.config.js": JEST},
    ),
    "js: mock of the module under test": Case(
        js(
            calc__test__js=js_tests(
                "const calc =", "jest.mock('./calc.js');\nconst calc ="
            ).replace("const test", "const jest = { mock() {} };\nconst test")
        ),
        "mocks the change",
        "jest.mock('./calc.js')",
        js(),
        NODE,
        JS,
    ),
}


# Many kinds have the same honest twin: each twin is run once
TWINS = {
    str((case.base, case.twin, case.command, case.needs_mutants)): name
    for name, case in CASES.items()
}


@pytest.mark.demand("E1.a", "E1.b")
@pytest.mark.parametrize("name", CASES)
def test_evidence_names_what_a_cheating_implementer_did(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    found = judge(tmp_path, _base(case), case.cheat, case.command, mutants=case.needs_mutants)
    assert case.kind in found.all, (found.all, found.report.notes)
    assert case.words in found.all[case.kind]


@pytest.mark.demand("E1.a", "E1.b")
@pytest.mark.parametrize("name", TWINS.values())
def test_the_honest_twin_passes(tmp_path: Path, name: str) -> None:
    """The control: the same kind of change, done honestly, is neither rejected nor asked about."""
    case = CASES[name]
    found = judge(tmp_path, _base(case), case.twin, case.command, mutants=case.needs_mutants)
    assert found.all == {}, found.report.notes


@pytest.mark.demand("E1.a", "E1.b")
def test_rewritten_tests_that_there_is_no_time_to_compare_are_asked_about(tmp_path: Path) -> None:
    case = CASES["compared with a value that is equal to everything"]
    late = judge(tmp_path / "late", _base(case), case.cheat, budget_s=0.0)
    assert (
        "too little time to compare with the base: test_calc.py::Adding.test_adds"
        in (late.all["not measured"])
    )
    # No test was rewritten, so none has to be compared
    added = judge(tmp_path / "added", _base(case), PY_HONEST, budget_s=0.0)
    assert added.all == {}, added.report.notes


@pytest.mark.demand("E3.a")
def test_a_quarantined_test_does_not_show_a_requirement(tmp_path: Path) -> None:
    flaky = frozenset({"test_calc.py::Adding.test_subtracts"})
    found = judge(tmp_path / "only", PY, PY_HONEST, mutants=False, flaky=flaky)
    assert "FR-CALC-002" in found.all["unnoticed requirement"]
    more = PY_HONEST["test_calc.py"] + (
        "\n    def test_subtracts_more(self):\n        self.assertEqual(sub(9, 3), 6)\n"
    )
    change = {**PY_HONEST, "test_calc.py": more}
    assert judge(tmp_path / "more", PY, change, mutants=False, flaky=flaky).all == {}


def _base(case: Case) -> dict[str, str]:
    return {path: text for path, text in case.base.items() if text is not None}
