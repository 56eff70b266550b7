"""Mutants of changed lines."""

from __future__ import annotations

import ast

import pytest

from phasegate.core.test_strength.compare import PackagePlanFacts, judge_mutants
from phasegate.core.test_strength.model import MutantResult, Severity
from phasegate.core.test_strength.mutants import EMPTIED, make_mutants

PYTHON = '''\
def classify(n, names):
    """Return "low < 3 and True" for small numbers."""
    if n < 3 and n != 1:  # a < b
        names.append("a == b")
        return n + 1
    return not names
'''
JAVASCRIPT = """\
exports.classify = (n, names) => {
  // n < 3 && true
  if (n <= 3 && n !== 1) {
    names.push('a === b');
    return n + 1;
  }
  return false;
};
"""


def altered(path: str, text: str, lines: set[int]) -> set[tuple[str, str]]:
    return {(one.kind, one.after) for one in make_mutants(path, text, lines)}


@pytest.mark.demand("E1.d")
def test_every_operator_alters_python_outside_of_strings_and_comments() -> None:
    found = altered("a.py", PYTHON, {2, 3, 4, 5, 6})
    assert {kind for kind, _ in found} == {
        EMPTIED,
        "boundary",
        "boolean",
        "comparison",
        "constant",
        "removed call",
        "return value",
        "arithmetic",
    }
    assert ("boundary", "if n <= 3 and n != 1:  # a < b") in found
    assert ("removed call", "pass") in found
    assert not any('"low' in after for _, after in found)
    for mutant in make_mutants("a.py", PYTHON, {3, 4, 5}):
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(PYTHON))


@pytest.mark.demand("E1.d")
def test_javascript_is_altered_by_patterns() -> None:
    found = altered("a.js", JAVASCRIPT, {1, 2, 3, 4, 5, 7})
    assert (EMPTIED, "return;") in found
    assert ("boundary", "if (n < 3 && n !== 1) {") in found
    assert ("comparison", "if (n <= 3 && n === 1) {") in found
    assert ("removed call", "void 0;") in found
    assert ("return value", "return undefined;") in found
    assert not any(after.startswith("//") for _, after in found)


def test_only_changed_lines_are_altered_and_other_languages_are_not() -> None:
    assert {one.line for one in make_mutants("a.py", PYTHON, {6}) if one.kind != EMPTIED} == {6}
    assert make_mutants("a.py", PYTHON, set()) == []
    assert make_mutants("a.go", "return a < b\n", {1}) == []
    assert make_mutants("broken.py", "def (:\n", {1}) == []


def result(kind: str, killed: bool) -> MutantResult:
    return MutantResult(path="a.py", line=1, kind=kind, before="x", after="y", killed=killed)


@pytest.mark.parametrize(
    ("mutants", "severity"),
    [
        ([result(EMPTIED, False), result("boundary", False)], Severity.REJECT),
        ([result(EMPTIED, False), result("boundary", True)], Severity.ASK),
        (
            [result(EMPTIED, True), result("boundary", False), result("boolean", False)],
            Severity.ASK,
        ),
        ([result(EMPTIED, True), result("boundary", True), result("boolean", False)], None),
        ([], None),
    ],
)
def test_one_survivor_is_listed_many_are_asked_about_and_an_unnoticed_body_rejects(
    mutants: list[MutantResult], severity: Severity | None
) -> None:
    findings = judge_mutants(mutants, PackagePlanFacts(requirements=("FR-A-001",)))
    assert [one.severity for one in findings] == ([severity] if severity else [])
