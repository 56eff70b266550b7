"""What is reported of a failed test: its name, its assertion, and nothing of the tests that passed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.checks.failed_tests import describe_failed_tests
from phasegate.checks.test_output import parse_test_output
from support.checkout import PYTEST_ALONE

RECORDED = Path(__file__).with_name("runner_outputs")
ASSERTIONS = {
    "cargo-failing": ("tests::breaks", "assertion `left == right` failed"),
    "go-verbose-failing": ("TestBreaks", "sum_test.go:12: got 2, want 3"),
    "jest-failing": ("sum › breaks", "Expected: 3"),
    "vitest-failing": ("v/a.test.js > sum > breaks", "AssertionError: expected 2 to be 3"),
    "mocha-failing": ("breaks", "AssertionError [ERR_ASSERTION]: 2 == 3"),
    "node-tap-failing": ("fails", "error: '2 == 3'"),
    "node-spec-failing": ("fails", "AssertionError [ERR_ASSERTION]: 2 == 3"),
}


@pytest.mark.parametrize("name", ASSERTIONS)
def test_a_failed_test_is_reported_with_its_assertion(name: str) -> None:
    test, assertion = ASSERTIONS[name]
    output = (RECORDED / f"{name}.txt").read_text(encoding="utf-8")
    run = parse_test_output(output)
    assert run is not None
    found = {one.name: one.detail for one in describe_failed_tests(output, run.failing)}
    assert any(assertion in line for line in found[test]), found
    assert not any("adds" in line and "describe(" not in line for line in found[test])


PYTHON_TESTS = """\
import unittest

def test_good(): pass
def test_bad():
    word = "hello"
    assert word == "world"
class Says(unittest.TestCase):
    def test_it(self):
        self.assertEqual(1, 2)
"""


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (
            ("-m", "pytest", *PYTEST_ALONE.split(), "-q", "test_it.py"),
            ("test_it.py::test_bad", "test_it.py::Says::test_it"),
        ),
        (
            ("-m", "pytest", *PYTEST_ALONE.split(), "-q", "--tb=no", "test_it.py"),
            ("test_it.py::test_bad",),
        ),
        (("-m", "unittest", "-q", "test_it"), ("test_it (test_it.Says.test_it)",)),
    ],
)
def test_python_runners_are_read_with_and_without_tracebacks(
    arguments: tuple[str, ...], names: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(PYTHON_TESTS)
    argv = [sys.executable, *arguments]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    output = f"{done.stdout}\n{done.stderr}"
    run = parse_test_output(output)
    assert run is not None
    found = {one.name: "\n".join(one.detail) for one in describe_failed_tests(output, run.failing)}
    assert all("AssertionError" in found[name] for name in names), output


def test_a_parent_that_failed_by_its_subtest_is_left_out() -> None:
    output = """\
    not ok 1 - inner
      ---
      error: '1 == 2'
      ...
not ok 1 - outer
  ---
  error: '1 subtest failed'
  ...
# pass 0
# fail 2
"""
    run = parse_test_output(output)
    assert run is not None
    assert [one.name for one in describe_failed_tests(output, run.failing)] == ["inner"]
