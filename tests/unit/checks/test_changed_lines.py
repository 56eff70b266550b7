"""How many of the changed lines a test run covered, by each kind of report that names lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.checks.changed_lines import describe_changed_coverage, find_added_lines

DIFF = """\
diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,2 +1,4 @@
 kept
+one
+two
 kept
@@ -9,0 +12 @@
+three
diff --git a/gone.py b/gone.py
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-old
"""
REPORTS = {
    "coverage.py": '{"files": {"src/a.py": {"executed_lines": [1, 2, 12], "missing_lines": [3]}}}',
    "lcov": "SF:/x/src/a.py\nDA:1,1\nDA:2,1\nDA:3,0\nDA:12,4\nend_of_record\n",
    "cobertura": '<coverage><class filename="src/a.py"><methods><line number="2" hits="0"/></methods>'
    '<line number="2" hits="1"/><line hits="0" number="3"/><line number="12" hits="2"/></class></coverage>',
    "go": "mode: set\nexample.org/m/src/a.py:2.1,2.9 1 1\nexample.org/m/src/a.py:3.1,3.9 1 0\n"
    "example.org/m/src/a.py:12.1,12.4 1 5\n",
}  # fmt: skip


def test_added_lines_have_the_numbers_of_the_new_file() -> None:
    assert find_added_lines(DIFF) == {"src/a.py": {2, 3, 12}}


@pytest.mark.parametrize("kind", REPORTS)
def test_changed_lines_are_counted_and_uncovered_ones_named(kind: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text(REPORTS[kind])
    found = describe_changed_coverage(report, DIFF)
    assert found == "2 of 3 changed lines are covered; not covered: src/a.py:3"


def test_a_report_without_the_changed_files_says_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text("SF:other.py\nDA:2,1\nend_of_record\n")
    assert describe_changed_coverage(report, DIFF) == ""
