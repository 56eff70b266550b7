"""What test runners say: outputs recorded from real runs, and real runs of those that are always here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.checks.test_output import TestRun, parse_test_output
from support.checkout import PYTEST_ALONE
from support.growth import assert_grows_no_faster_than_its_input

RECORDED = Path(__file__).with_name("runner_outputs")

RUNS = [
    ("cargo-passing", TestRun("cargo test", 2, 0, skipped=1)),
    ("cargo-failing", TestRun("cargo test", 1, 1, ("tests::breaks",), skipped=1)),
    ("go-verbose-passing", TestRun("go test", 2, 0)),
    ("go-verbose-failing", TestRun("go test", 1, 1, ("TestBreaks",), skipped=1)),
    ("go-plain-passing", TestRun("go test", 2, 0)),
    ("go-plain-broken", TestRun("go test", 0, 1, ("example.invalid/sum",))),
    (
        "go-json-failing",
        TestRun("go test -json", 1, 1, ("example.invalid/sum.TestBreaks",), skipped=1),
    ),
    ("jest-passing", TestRun("jest", 2, 0, skipped=1)),
    ("jest-failing", TestRun("jest", 1, 1, ("sum › breaks",), skipped=1)),
    ("vitest-passing", TestRun("vitest", 2, 0, skipped=1)),
    ("vitest-coloured", TestRun("vitest", 2, 0, skipped=1)),
    (
        "vitest-failing",
        TestRun(
            "vitest", 1, 1, ("v/b.test.js [ v/b.test.js ]", "v/a.test.js > sum > breaks"), skipped=1
        ),
    ),
    ("mocha-passing", TestRun("mocha", 2, 0, skipped=1)),
    ("mocha-failing", TestRun("mocha", 1, 1, ("breaks",), skipped=1)),
    ("node-tap-passing", TestRun("node --test", 2, 0, skipped=1)),
    ("node-tap-failing", TestRun("node --test", 1, 1, ("fails",), skipped=1)),
    ("node-spec-failing", TestRun("node --test", 1, 1, ("fails",), skipped=1)),
    ("tape-passing", TestRun("tape", 2, 0)),
    ("tape-failing", TestRun("tape", 1, 1, ("one and one",))),
    ("bun-failing", TestRun("bun test", 1, 1, ("outer > bad",))),
    ("ctest-failing", TestRun("ctest", 1, 1, ("bad",))),
]


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize(("name", "run"), RUNS)
def test_what_a_runner_said_is_read_from_its_own_words(name: str, run: TestRun) -> None:
    assert parse_test_output((RECORDED / f"{name}.txt").read_text()) == run


@pytest.mark.demand("D8.b", "R1.b")
@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("\n  ✔ adds\n  ─\n\n  2 tests passed\n", TestRun("ava", 2, 0)),
        ("  1 test passed\n  1 test failed\n", TestRun("ava", 1, 1)),
        ("  Total:     3\n  Passed:    2\n  Skipped:   0\n", TestRun("uvu", 2, 1)),
        ("# { total: 5, pass: 4, fail: 1 }\n", TestRun("tap", 4, 1)),
        (
            "PASS: a.sh\nFAIL: b.sh\n# TOTAL: 3\n# PASS:  1\n# SKIP:  1\n# XFAIL: 0\n# FAIL:  1\n# ERROR: 0\n",
            TestRun("automake", 1, 1, ("b.sh",)),
        ),
        (
            "[ERROR] Tests run: 5, Failures: 1, Errors: 0, Skipped: 1\n",
            TestRun("surefire", 3, 1, skipped=1),
        ),
    ],
)
def test_the_summaries_of_other_runners_are_read(text: str, run: TestRun) -> None:
    assert parse_test_output(text) == run


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize("path", sorted(RECORDED.glob("*-none.txt")), ids=lambda path: path.stem)
def test_a_run_without_tests_is_never_read_as_one_with_tests(path: Path) -> None:
    run = parse_test_output(path.read_text())
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
    assert parse_test_output(text) is None


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
def test_pytest_is_understood_in_each_of_its_voices(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST_FILE)
    run = parse_test_output(python(tmp_path, "-m", "pytest", *PYTEST_ALONE.split(), *options))
    assert run is not None
    assert (run.passed, run.failed) == (2, 3)
    assert "test_it.py::test_fails" in run.failing
    assert "test_it.py::test_errs" in run.failing
    assert len(run.failing) == 3


@pytest.mark.demand("D8.b")
def test_pytest_that_finds_nothing_ran_nothing(tmp_path: Path) -> None:
    run = parse_test_output(python(tmp_path, "-m", "pytest", *PYTEST_ALONE.split()))
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
    run = parse_test_output(python(tmp_path, "-m", "unittest"))
    assert run is not None
    assert (run.passed, run.failed, len(run.failing)) == (1, 1, 1)


def test_only_the_last_word_of_a_runner_that_speaks_once_counts() -> None:
    assert parse_test_output("9 passed in 1.00s\n1 failed, 1 passed in 0.50s\n") == TestRun(
        "pytest", 1, 1
    )


def test_reading_grows_with_the_size_of_the_output() -> None:
    def flooded(size: int) -> str:
        floods = [
            "1" * size,
            "Tests: " + "1 a, " * (size // 5),
            "FAILED " + " - " * (size // 3),
            "ok " + " " * size,
        ]
        return "\n".join(f"{flood}\n" * 3 for flood in floods)

    assert_grows_no_faster_than_its_input(parse_test_output, flooded, 20_000, 160_000)


def counted(output: str) -> int | None:
    run = parse_test_output(output)
    return None if run is None else run.executed


@pytest.mark.demand("D8.b")
@pytest.mark.parametrize(
    ("output", "count"),
    [
        ("....\n4 passed in 0.12s\n", 4),
        ("=== 2 failed, 3 passed, 1 skipped, 1 warning in 65.00s (0:01:05) ===\n", 5),
        ("\x1b[32m\x1b[1m7 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m\n", 7),
        ("no tests ran in 0.01s\n", 0),
        ("3 skipped in 0.01s\n", 0),
        ("3 deselected in 0.01s\n", 0),
        ("1 error in 0.10s\n", 1),
        ("...\n-----\nRan 5 tests in 0.001s\n\nOK\n", 5),
        ("Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", 0),
        (
            "test result: ok. 3 passed; 0 failed; 1 ignored\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n",
            6,
        ),
        ("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n", 0),
        ("     Summary [   0.5s] 42 tests run: 42 passed, 0 skipped\n", 42),
        ("Tests:       1 failed, 41 passed, 42 total\n", 42),
        ("Tests:       3 skipped, 3 total\n", 0),
        (" Test Files  1 passed (1)\n      Tests  2 passed | 1 skipped (3)\n", 2),
        ("\n  12 passing (30ms)\n  1 failing\n", 13),
        ("# tests 4\n# pass 3\n# fail 1\n# skipped 0\n", 4),
        ("ℹ tests 2\nℹ pass 2\nℹ fail 0\n", 2),
        (
            "--- PASS: TestA (0.0s)\n    --- PASS: TestA/sub (0.0s)\n--- FAIL: TestB (0.0s)\nFAIL\nFAIL\tx/a\t0.01s\n",
            3,
        ),
        (
            "--- SKIP: TestA (0.00s)\nok  \texample/a\t0.01s [no tests to run]\n?   \tb\t[no test files]\n",
            None,
        ),
        ("--- PASS: TestA (0.0s)\n", None),  # broken off
        ("ok  \texample/a\t0.01s\tcoverage: 80.0% of statements\n", 1),
        ("all good, trust me\n", None),
        ("I ran 40 tests and all passed in no time\n", None),
        ("", None),
    ],
)
def test_executed_tests_are_counted_from_what_the_runner_prints(
    output: str, count: int | None
) -> None:
    assert counted(output) == count
