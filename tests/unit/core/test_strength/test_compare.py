"""Lost tests, and the requirements that tests notice."""

from __future__ import annotations

from phasegate.core.test_strength.compare import (
    ChangedText,
    PackagePlanFacts,
    SourceIndex,
    find_dependent_tests,
    find_lost_tests,
    judge_lost_tests,
    match_requirements,
)
from phasegate.core.test_strength.model import TestOutcome

PASSED, FAILED, SKIPPED, ERROR = (
    TestOutcome.PASSED,
    TestOutcome.FAILED,
    TestOutcome.SKIPPED,
    TestOutcome.ERROR,
)
OLD = "def test_a():\n    assert one() == 1\n"


def test_parameters_may_change_their_names_but_not_get_fewer() -> None:
    base = {"t.py::test_a[1]": PASSED, "t.py::test_a[2]": PASSED}
    assert find_lost_tests(base, {"t.py::test_a[x]": PASSED, "t.py::test_a[y]": PASSED}) == {}
    lost = find_lost_tests(base, {"t.py::test_a[1]": PASSED})
    assert lost == {"t.py::test_a[2]": "is no longer run"}


def test_a_test_that_failed_on_the_base_is_not_lost() -> None:
    assert find_lost_tests({"t.py::test_a": FAILED}, {}) == {}
    assert find_lost_tests({"t.py::test_a": PASSED}, {"t.py::test_a": SKIPPED})


def test_the_plan_explains_a_removed_test_and_the_work_does_not() -> None:
    sources = SourceIndex([ChangedText("t.py", OLD, "# FR-A-001\n")])
    lost = {"t.py::test_a": "is no longer run"}

    def rejects(facts: PackagePlanFacts) -> bool:
        return bool(judge_lost_tests(lost, {}, sources, facts)[0])

    assert rejects(PackagePlanFacts(requirements=("FR-A-001",)))
    assert not rejects(PackagePlanFacts(document="- Remove test_a"))
    assert rejects(PackagePlanFacts(document="- Remove test_b"))
    named = SourceIndex([ChangedText("t.py", OLD.replace("== 1", "== 1  # FR-A-001"), None)])
    findings, explained = judge_lost_tests(
        lost, {}, named, PackagePlanFacts(requirements=("FR-A-001",))
    )
    assert (findings, "FR-A-001" in explained[0]) == ([], True)


def test_a_file_that_cannot_be_loaded_says_nothing_about_its_old_tests() -> None:
    work = {"t.py::test_old": PASSED, "t.py::test_new": PASSED, "u.py::test_red": PASSED}
    base = {"t.py::test_old": PASSED, "u.py::test_red": FAILED}
    assert find_dependent_tests(base, {"t.py::": ERROR}, work) == [
        "t.py::test_new",
        "u.py::test_red",
    ]


def test_a_test_counts_for_the_requirements_that_it_names() -> None:
    texts = {
        "t.py::test_fr_a_001_adds": "",
        "t.py::test_b": "FR-A-002",
        "t.py::test_c": "no id; FR-A-0011",
    }
    texts = {test: f"{test}\n{text}" for test, text in texts.items()}
    found = ["t.py::test_fr_a_001_adds", "t.py::test_c"]
    rows = match_requirements(("FR-A-001", "FR-A-002", "FR-A-003"), found, texts)
    assert [row.bites for row in rows] == [
        ("t.py::test_fr_a_001_adds",),
        # Its own test does not notice the change
        (),
        # No test names it: one that names none counts
        ("t.py::test_c",),
    ]
