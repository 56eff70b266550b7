"""What it costs to measure the tests of a package, against one run of its test suite."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.measure import Row

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

GOAL = 2.0
CODE = "def add(a, b):\n    return a + b\n"
# A suite of some seconds, most of which the change does not touch
SLOW = """\
import time
import unittest


class Slow(unittest.TestCase):
    def test_slow(self):
        time.sleep(4)
"""
TESTS = """\
import unittest

import calc


class Adding(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(calc.add(2, 3), 5)
"""
BASE = {"calc.py": CODE, "test_calc.py": TESTS, "test_slow.py": SLOW}
CHANGE = {
    "calc.py": CODE + "".join(f"\n\ndef add_{n}(a):\n    return a + {n}\n" for n in range(20)),
    "test_calc.py": TESTS
    + "".join(
        f"\n    def test_adds_{n}(self):\n        self.assertEqual(calc.add_{n}(1), {n + 1})\n"
        for n in range(20)
    ),
}


def rows() -> list[Row]:
    from support.strength_lab import judge, time_suite

    with tempfile.TemporaryDirectory() as room:
        suite_s = time_suite(Path(room, "suite"), {**BASE, **CHANGE})
        found = judge(Path(room, "judge"), BASE, CHANGE, budget_s=GOAL * suite_s)
    assert found.report.mutants, found.report
    assert not found.rejects, found.rejects
    return [
        Row(
            "measuring the tests of a package, against its test run",
            found.report.cost_s * 1000,
            suite_s * 1000,
            GOAL,
            unit="ms",
        )
    ]
