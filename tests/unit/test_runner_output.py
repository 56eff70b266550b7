"""What test runners say: outputs recorded from real runs, and real runs of those that are always here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.checks.runner_output import TestRun, read_test_output
from support.growth import assert_grows_no_faster_than_its_input

RECORDED = Path(__file__).with_name("runner_outputs")

RUNS = [
    ("cargo-passing", TestRun("cargo test", 2, 0)),
    ("cargo-failing", TestRun("cargo test", 1, 1, ("tests::breaks",))),
    ("go-verbose-passing", TestRun("go test", 2, 0)),
    ("go-verbose-failing", TestRun("go test", 1, 1, ("TestBreaks",))),
    ("go-plain-passing", TestRun("go test", 2, 0)),
    ("go-plain-broken", TestRun("go test", 0, 1, ("example.invalid/sum",))),
    ("go-json-failing", TestRun("go test -json", 1, 1, ("example.invalid/sum.TestBreaks",))),
    ("jest-passing", TestRun("jest", 2, 0)),
    ("jest-failing", TestRun("jest", 1, 1, ("sum › breaks",))),
    ("vitest-passing", TestRun("vitest", 2, 0)),
    ("vitest-coloured", TestRun("vitest", 2, 0)),
    ("vitest-failing", TestRun("vitest", 1, 1, ("v/b.test.js [ v/b.test.js ]", "v/a.test.js > sum > breaks"))),
    ("mocha-passing", TestRun("mocha", 2, 0)),
    ("mocha-failing", TestRun("mocha", 1, 1, ("breaks",))),
    ("node-tap-passing", TestRun("node --test", 2, 0)),
    ("node-tap-failing", TestRun("node --test", 1, 1, ("fails",))),
    ("node-spec-failing", TestRun("node --test", 1, 1, ("fails",))),
]


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize(("name", "run"), RUNS)
def test_what_a_runner_said_is_read_from_its_own_words(name: str, run: TestRun) -> None:
    assert read_test_output((RECORDED / f"{name}.txt").read_text()) == run


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize("path", sorted(RECORDED.glob("*-none.txt")), ids=lambda path: path.stem)
def test_a_run_without_tests_is_never_read_as_one_with_tests(path: Path) -> None:
    run = read_test_output(path.read_text())
    assert run is None or run.executed == 0


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "5 passed",
        "all 5 tests passed!",
        "I ran the tests: 5 passed in total",
        "    5 passed in 0.10s",
        "Ran 5 tests in 0.001s",
        "Tests: 5 passed",
        "test result: great. 5 passed",
        "ok",
        "PASS",
    ],
)
def test_words_that_no_runner_uses_are_no_run(text: str) -> None:
    assert read_test_output(text) is None


def python(folder: Path, *arguments: str) -> str:
    done = subprocess.run((sys.executable, *arguments), cwd=folder, capture_output=True, text=True)
    return f"{done.stdout}\n{done.stderr}"


PYTEST_FILE = """
import pytest
def test_passes(): pass
def test_fails(): assert 1 == 2
@pytest.fixture
def broken(): raise ValueError
def test_errs(broken): pass
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_xfails(): assert False
@pytest.mark.parametrize("x", ["a b - c"])
def test_names(x): assert not x
"""


@pytest.mark.demand("D8.b", "D8.j")
@pytest.mark.parametrize("options", [(), ("-q",), ("-v",), ("--color=yes",), ("-n2",)], ids=str)
def test_pytest_is_understood_in_each_of_its_voices(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST_FILE)
    run = read_test_output(python(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *options))
    assert run is not None
    assert (run.passed, run.failed) == (2, 3)
    assert "test_it.py::test_fails" in run.failing
    assert "test_it.py::test_errs" in run.failing
    assert len(run.failing) == 3


@pytest.mark.demand("D8.b")
def test_pytest_that_finds_nothing_ran_nothing(tmp_path: Path) -> None:
    run = read_test_output(python(tmp_path, "-m", "pytest", "-p", "no:cacheprovider"))
    assert run is not None
    assert run.executed == 0


UNITTEST_FILE = """
import unittest
class T(unittest.TestCase):
    def test_passes(self): pass
    def test_fails(self): self.fail()
    @unittest.skip("later")
    def test_skipped(self): pass
"""


@pytest.mark.demand("D8.b")
def test_unittest_is_understood(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNITTEST_FILE)
    run = read_test_output(python(tmp_path, "-m", "unittest"))
    assert run is not None
    assert (run.passed, run.failed, len(run.failing)) == (1, 1, 1)


def test_only_the_last_word_of_a_runner_that_speaks_once_counts() -> None:
    assert read_test_output("9 passed in 1.00s\n1 failed, 1 passed in 0.50s\n") == TestRun("pytest", 1, 1)


def test_reading_grows_with_the_size_of_the_output() -> None:
    def flooded(size: int) -> str:
        floods = ["1" * size, "Tests: " + "1 a, " * (size // 5), "FAILED " + " - " * (size // 3), "ok " + " " * size]
        return "\n".join(f"{flood}\n" * 3 for flood in floods)

    assert_grows_no_faster_than_its_input(read_test_output, flooded, 20_000, 160_000)
