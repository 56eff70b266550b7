"""Sealed acceptance tests decide about the work, whatever the implementer does to them or to their runner."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from phasegate.checks.evidence import CheckOutcome
from phasegate.core.plan.acceptance import AcceptanceSeal, SealedTests
from phasegate.core.plan.work_package import WorkPackage
from phasegate.engine.checks.acceptance import (
    SealedResult,
    check_sealed_tests,
    prove_acceptance_tests,
)
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import open_project
from support.git_project import git, make_repository, write

SLUG = "001-bye"
FOLDER = f"kitty-specs/{SLUG}"
SPEC = """\
<!-- spec-kitty: fr-count: 1 -->
# Feature: say bye

<!-- sk:fr id="FR-BYE-001" priority="high" -->
- A farewell must name the user
<!-- /sk:fr -->
"""
HONEST = "def bye(name):\n    return f'Bye, {name}'\n"
WRONG = "def bye(name):\n    return 'Bye'\n"
UNITTEST = """\
import unittest


class Bye(unittest.TestCase):
    def test_fr_bye_001_names_the_user(self):
        from bye import bye

        self.assertEqual(bye("Ada"), "Bye, Ada")
"""
PYTEST = """\
def test_fr_bye_001_names_the_user():
    from bye import bye

    assert bye("Ada") == "Bye, Ada"
"""
TESTS = {"unittest": UNITTEST, "pytest": PYTEST}
FORGED = """\
import json, os, pathlib
ids = ["accept_bye.py::Bye::test_fr_bye_001_names_the_user", "accept_bye.py::test_fr_bye_001_names_the_user"]
report = json.dumps({"outcomes": dict.fromkeys(ids, "passed"), "changed": []})
for place in pathlib.Path(".").glob(".phasegate-*/*/"):
    for name in ("report.json", "accept_bye.py.json"):
        (place / name).write_text(json.dumps({"report": report, "mac": ""}))
"""
HOOK = """\
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
# The names of the folder and of the runner are spelled so that no search for words finds them
REWRITE = """\
import pathlib

def rewrite():
    for path in pathlib.Path(".").glob(".phasegate-*/*/*.json"):
        path.write_text(path.read_text().replace("failed", "passed"))

"""
WAIT = """\
import time

for _ in range(100):
    rewrite()
    time.sleep(0.05)
"""
FORGED_PROGRAM = """\
import pathlib
for path in pathlib.Path(".").glob(".phasegate-*/*/run.py"):
    path.write_text("raise SystemExit(0)")
"""
RESTORED = """\
from importlib import import_module

case = import_module("tset""tinu"[::-1]).TestCase
plain = case.assertEqual

def fake(self, *values):
    case.assertEqual = plain

case.assertEqual = fake
"""
RESTORED_REPORT = """\
from importlib import import_module

try:
    runner = import_module("rennur.tsetyp_"[::-1])
except ImportError:
    runner = None
if runner:
    plain = runner.CallInfo.__init__

    def fake(self, result, excinfo, start, stop, duration, when, **rest):
        runner.CallInfo.__init__ = plain
        plain(self, None, None, start, stop, duration, when, **rest)

    runner.CallInfo.__init__ = fake
"""
FRAMES = """\
import hmac, json, os, pathlib

try:
    raise ValueError
except ValueError as error:
    frame = error.__traceback__.tb_frame
while frame:
    writer = frame.f_locals.get("write_report")
    path = frame.f_locals.get("path")
    if writer and path:
        ids = [
            "accept_bye.py::Bye::test_fr_bye_001_names_the_user",
            "accept_bye.py::test_fr_bye_001_names_the_user",
        ]
        writer({"outcomes": dict.fromkeys(ids, "passed"), "changed": []}, path)
    frame = getattr(frame, "kcab_f"[::-1])
"""
PLUGIN = """\
from importlib import import_module

try:
    manager = import_module("litu.noitressa.tsetyp_"[::-1])._config.pluginmanager
except (ImportError, AttributeError):
    manager = None
if manager:
    hookimpl = import_module("tsetyp"[::-1]).hookimpl
    found = [one for one in manager.get_plugins() if type(one).__name__ == "Recorder"]
    cells = [
        cell.cell_contents
        for one in vars(type(found[0])).values()
        for cell in getattr(one, "__closure__", None) or ()
    ]

    class Passing:
        @hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item, call):
            for one in cells:
                if isinstance(one, set):
                    one.clear()
            outcome = yield
            outcome.get_result().outcome = "passed"

    manager.register(Passing())
"""
# What each implementer adds to code that does not meet the requirement, and what names it
ATTACKS: dict[str, tuple[Mapping[str, str], str]] = {
    "edits the sealed test": (
        {f"{FOLDER}/acceptance/accept_bye.py": "def test_fr_bye_001_x():\n    pass\n"},
        "failed",
    ),
    "puts a test in the folder of the sealed ones": (
        {".phasegate-acceptance/0/accept_bye.py": "def test_fr_bye_001_x():\n    pass\n"},
        "is in the folder of the sealed tests",
    ),
    "adds a conftest that passes everything": ({"conftest.py": HOOK}, "failed"),
    "adds a plugin by the settings": (
        {
            "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p tests.hook"\n',
            "tests/hook.py": HOOK,
        },
        "failed",
    ),
    "skips by the settings": (
        {"pytest.ini": "[pytest]\naddopts = --deselect accept_bye.py -k nothing\n"},
        "failed",
    ),
    "shadows unittest": (
        {"unittest.py": "class TestCase:\n    pass\n"},
        "shadows the module unittest",
    ),
    "shadows pytest": ({"pytest/__init__.py": "def main(*a): pass\n"}, "shadows the module pytest"),
    "shadows a module from src": ({"src/json.py": "x = 1\n"}, "shadows the module json"),
    "runs code when Python starts": (
        {"sitecustomize.py": "x = 1\n"},
        "runs code when Python starts",
    ),
    "patches assertEqual": (
        {"bye.py": WRONG + "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n"},
        "refers to the test runner: import unittest",
    ),
    "patches without naming the runner": (
        {
            "bye.py": WRONG
            + "from importlib import import_module\n"
            + "case = import_module('esac.tsettinu'[::-1]).TestCase\n"
            + "case.assertEqual = lambda *a: None\n"
            + "try: import_module('nohtyp.tsetyp_'[::-1]).Function.runtest = lambda self: None\n"
            + "except ImportError: pass\n"
        },
        "changed the test runner",
    ),
    "skips from the code": (
        {
            "bye.py": WRONG
            + "from importlib import import_module\n"
            + "raise import_module('tsettinu'[::-1]).SkipTest('later')\n"
        },
        "skipped",
    ),
    "ends the process": (
        {"bye.py": WRONG + "import os\ngetattr(os, 'tixe_'[::-1])(0)\n"},
        "not run",
    ),
    "rewrites the report at exit": (
        {"bye.py": WRONG + "import atexit\n" + REWRITE + "atexit.register(rewrite)\n"},
        "failed",
    ),
    "rewrites the report from another process": (
        {
            "bye.py": WRONG
            + "import subprocess, sys\n"
            + f"subprocess.Popen([sys.executable, '-c', {REWRITE + WAIT!r}])\n"
        },
        # Whether it comes in time or not
        "",
    ),
    "replaces the writer of reports": (
        {
            "bye.py": WRONG
            + "import json\n"
            + "plain = json.dumps\n"
            + "json.dumps = lambda *a, **k: plain(*a, **k).replace('failed', 'passed')\n"
        },
        "failed",
    ),
    "replaces the program of the run": (
        {"bye.py": WRONG + FORGED_PROGRAM},
        "failed",
    ),
    "patches and restores assertEqual": (
        {"bye.py": WRONG + RESTORED},
        # As a change of the runner, or because it has no effect
        "",
    ),
    "patches and restores the report of a test": (
        {"bye.py": WRONG + RESTORED_REPORT},
        "failed",
    ),
    "looks for the runner in the loaded modules": (
        {"bye.py": WRONG + "import sys\nnames = [*sys.modules]\n"},
        "refers to the test runner: names = [*sys.modules]",
    ),
    "looks for the results in memory": (
        {"bye.py": WRONG + "import gc\nfound = gc.get_objects()\n"},
        "refers to the test runner: found = gc.get_objects()",
    ),
    "changes the runner during the setup": (
        {"setup.py": "import site\nprint(site.getsitepackages())\n"},
        "setup.py refers to the test runner",
    ),
    "joins the name of the runner": (
        {"bye.py": WRONG + "import importlib\nx = importlib.import_module('unit' + 'test')\n"},
        "refers to the test runner",
    ),
    "writes the report and ends the process": (
        {"bye.py": WRONG + FORGED + "getattr(os, 'tixe_'[::-1])(0)\n"},
        "changed the test runner: the report of accept_bye.py",
    ),
    "adds a conftest in a folder above": (
        {"tests/conftest.py": HOOK, "src/conftest.py": HOOK},
        "failed",
    ),
    "skips by setup.cfg and tox.ini": (
        {
            "setup.cfg": "[tool:pytest]\naddopts = -p tests.hook -k nothing\n",
            "tox.ini": "[pytest]\naddopts = -p tests.hook -k nothing\n",
            "tests/hook.py": HOOK,
        },
        "failed",
    ),
    "links the folder of the sealed tests": (
        {".phasegate-acceptance": "-> src"},
        "is in the folder",
    ),
    "writes the folder in other letters": (
        {".Phasegate-Acceptance/0/accept_bye.py": "def test_fr_bye_001_x():\n    pass\n"},
        "is in the folder of the sealed tests",
    ),
    "shadows a module by its bytecode": ({"pdb.pyc": "x"}, "shadows the module pdb"),
    "shadows a module by an extension": (
        {"difflib.cpython-311-x86_64-linux-gnu.so": "x"},
        "shadows the module difflib",
    ),
    "installs another runner from a folder": (
        {"vendor/pytest/__init__.py": "def main(*a): pass\n", "requirements.txt": "./vendor\n"},
        "shadows the module pytest",
    ),
    "installs another unittest from a folder": (
        {"vendor/lib/unittest/__init__.py": "x = 1\n"},
        "shadows the module unittest",
    ),
    "names the runner in letters that are equal to Python": (
        {"bye.py": WRONG + "import ｕnittest\nｕnittest.TestCase.assertEqual = lambda *a: None\n"},
        "refers to the test runner",
    ),
    "replaces the tests by a filter of git": (
        {".gitattributes": "* filter=evil eol=crlf\n"},
        "failed",
    ),
    "generates a file at the sealed path": (
        {
            "bye.py": WRONG
            + "import pathlib\n"
            + "for one in pathlib.Path('.').glob('.phasegate-*/*/accept_bye.py'):\n"
            + "    one.write_text('def test_fr_bye_001_names_the_user(): pass')\n"
        },
        "failed",
    ),
    "has side effects in the package of the tests": (
        {
            "tests/__init__.py": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n",
            "bye/__init__.py": "import tests\n" + WRONG,
        },
        "",
    ),
    "replaces a builtin": (
        {
            "bye.py": WRONG
            + "import builtins\nbuiltins.isinstance = lambda *a: False\n"
            + "builtins.repr = lambda *a: ''\nbuiltins.AssertionError = KeyError\n"
        },
        # The runner itself may break by it
        "",
    ),
    "raises an exit": ({"bye.py": WRONG + "raise SystemExit(0)\n"}, ""),
    "reads the frames of an exception": (
        {"bye.py": WRONG + FRAMES},
        "changed the test runner: bye.py reads its frames",
    ),
    "registers a plugin during the test": (
        {"bye.py": WRONG + PLUGIN},
        "",
    ),
}


class Sealed:
    """A repository with an acceptance test, before the code."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.project = open_project(folder)
        self.branch = FeatureBranch(self.project, SLUG)

    def prove(self) -> AcceptanceSeal | tuple[str, ...]:
        return prove_acceptance_tests(self.branch, self.commit({}))

    def commit(self, files: Mapping[str, str]) -> str:
        write(self.root, {name: text for name, text in files.items() if "-> " not in text})
        for name, text in files.items():
            if text.startswith("-> "):
                (self.root / name).symlink_to(text.removeprefix("-> "))
        if files:
            git(self.root, "add", "-A", "-f", *files)
            git(self.root, "commit", "-q", "-m", "WP01: Do it")
        return git(self.root, "rev-parse", "HEAD").strip()

    def check(self, seal: AcceptanceSeal, files: Mapping[str, str]) -> SealedResult:
        package = WorkPackage(
            work_package_id="WP01", title="", feature_slug=SLUG, file_scope=(), requirements=()
        )
        checker = PackageChecker(self.project, package, seal.commit)
        return check_sealed_tests(checker, self.commit(files), SealedTests(seal, ("FR-BYE-001",)))


def make_sealed(folder: Path, runner: str) -> Sealed:
    command = f"{sys.executable} -m pytest" if runner == "pytest" else "python3 -m unittest"
    settings = f'[checks.python]\nsetup = ""\nlint = ""\ntypecheck = ""\ntest = "{command}"\n'
    if runner == "pytest":
        # This pytest is in an environment that the sandbox does not show
        settings += '[run]\nsandbox = "none"\n'
    files = {
        "phasegate.toml": settings,
        "requirements.txt": "",
        f"{FOLDER}/spec.md": SPEC,
        f"{FOLDER}/acceptance/accept_bye.py": TESTS[runner],
    }
    root = make_repository(folder, files).root
    git(root, "branch", f"feat/{SLUG}")
    return Sealed(root)


Proven = dict[str, tuple[Path, AcceptanceSeal]]


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Proven:
    """A repository for each runner, in which the tests are proven and sealed."""
    found: Proven = {}
    for runner in TESTS:
        sealed = make_sealed(tmp_path_factory.mktemp("sealed") / runner, runner)
        seal = sealed.prove()
        assert isinstance(seal, AcceptanceSeal), seal
        found[runner] = (sealed.root, seal)
    return found


def check_copy(
    proven: Proven, folder: Path, runner: str, files: Mapping[str, str]
) -> tuple[Sealed, SealedResult]:
    """What the sealed tests say about a copy of the repository with these files."""
    root, seal = proven[runner]
    shutil.copytree(root, folder / "repo", symlinks=True)
    sealed = Sealed(folder / "repo")
    return sealed, sealed.check(seal, files)


@pytest.mark.demand("E2.b")
@pytest.mark.parametrize("runner", TESTS)
def test_honest_code_passes_the_sealed_test_with_a_row_for_its_requirement(
    tmp_path: Path, proven: Proven, runner: str
) -> None:
    files = {"bye.py": HONEST, "conftest.py": "x = 1\n"}
    sealed, result = check_copy(proven, tmp_path, runner, files)
    assert result.check.outcome is CheckOutcome.PASSED, result.check
    (row,) = result.rows
    tree = git(sealed.root, "rev-parse", "HEAD^{tree}").strip()
    assert (row.requirement, row.outcome, row.tree, len(row.revision)) == (
        "FR-BYE-001",
        "passed",
        tree,
        16,
    )


@pytest.mark.demand("E2.b")
@pytest.mark.parametrize("runner", TESTS)
def test_honest_code_may_use_the_libraries_that_use_frames(
    tmp_path: Path, proven: Proven, runner: str
) -> None:
    used = """\
import collections, dataclasses, enum, inspect, logging, traceback, typing, warnings

Point = collections.namedtuple("Point", "x y")
Size = typing.NamedTuple("Size", [("x", int)])
Color = enum.Enum("Color", "RED BLUE")


@dataclasses.dataclass
class Line:
    length: int = inspect.signature(len).parameters.__len__()


try:
    raise ValueError
except ValueError:
    traceback.format_exc()
    logging.getLogger("bye").exception("caught")
warnings.warn("later", stacklevel=2)

"""
    files = {"bye.py": used + HONEST, "vendor/README": "x", "tests/unittest/test_bye.py": "x = 1\n"}
    _, result = check_copy(proven, tmp_path, runner, files)
    assert result.check.outcome is CheckOutcome.PASSED, result.check


@pytest.mark.demand("E2.c")
@pytest.mark.parametrize("runner", TESTS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_implementer_that_tampers_with_sealed_tests_is_stopped(
    tmp_path: Path, proven: Proven, attack: str, runner: str
) -> None:
    files, named = ATTACKS[attack]
    _, result = check_copy(proven, tmp_path, runner, {"bye.py": WRONG, **files})
    assert result.check.outcome is CheckOutcome.FAILED, result
    assert named in result.check.summary


@pytest.mark.demand("E2.c")
def test_code_that_one_sealed_file_imports_cannot_change_the_next_file(tmp_path: Path) -> None:
    second = UNITTEST.replace("class Bye", "class Next").replace("001_names_the_user", "001_again")
    sealed = make_sealed(tmp_path / "repo", "unittest")
    sealed.commit({f"{FOLDER}/acceptance/accept_next.py": second})
    seal = sealed.prove()
    assert isinstance(seal, AcceptanceSeal), seal
    replaced = """\
import pathlib
for path in pathlib.Path(".").glob(".phasegate-*/*/accept_next.py"):
    path.write_text(path.read_text().replace('"Bye, Ada"', '"Bye"'))
for path in pathlib.Path(".").glob(".phasegate-*/*/run.py"):
    path.write_text("raise SystemExit(0)")
"""
    result = sealed.check(seal, {"bye.py": WRONG + replaced})
    assert result.check.outcome is CheckOutcome.FAILED
    assert result.rows[0].outcome == "failed"
    assert sealed.check(seal, {"bye.py": HONEST}).check.outcome is CheckOutcome.PASSED


@pytest.mark.demand("E2.d")
def test_a_requirement_that_changed_since_the_seal_stops_the_work(
    tmp_path: Path, proven: Proven
) -> None:
    changed = SPEC.replace("must name the user", "must not name the user")
    files = {"bye.py": HONEST, f"{FOLDER}/spec.md": changed}
    _, result = check_copy(proven, tmp_path, "unittest", files)
    assert result.check.summary == "FR-BYE-001 was changed after its tests were sealed"


@pytest.mark.demand("E2.a")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def helper():\n    pass\n", "FR-BYE-001 has no acceptance test"),
        (UNITTEST.replace("_001", "_0012"), "FR-BYE-001 has no acceptance test"),
        ("def test(:\n", "acceptance/accept_bye.py cannot be parsed: invalid syntax"),
        (
            UNITTEST.replace('bye("Ada"), "Bye, Ada"', "1, 1").replace(
                "from bye import bye", "pass"
            ),
            "already passes without the feature, so it proves nothing",
        ),
        (
            UNITTEST.replace("from bye import bye", "import time; import os; n = os.urandom(1)[0]")
            .replace('self.assertEqual(bye("Ada"), "Bye, Ada")', "self.assertEqual(self.flip(), 0)")
            .replace(
                "    def test",
                "    def flip(self):\n        import pathlib\n"
                "        place = pathlib.Path('seen')\n        seen = place.exists()\n"
                "        place.touch()\n        return seen\n\n    def test",
            ),
            "is not deterministic: failed, passed",
        ),
        (
            UNITTEST.replace("    def test", "    @unittest.skip('later')\n    def test"),
            "is skipped",
        ),
    ],
)
def test_acceptance_tests_that_prove_nothing_are_not_sealed(
    tmp_path: Path, text: str, problem: str
) -> None:
    sealed = make_sealed(tmp_path / "repo", "unittest")
    sealed.commit({f"{FOLDER}/acceptance/accept_bye.py": text})
    problems = sealed.prove()
    assert isinstance(problems, tuple)
    assert problem in problems[0]
