"""The grounds of a decision, as text."""

from __future__ import annotations

import pytest

from phasegate.core.plan.trace import RequirementTrace, TestLink
from phasegate.core.test_strength.model import (
    FlakyTest,
    MutantResult,
    RequirementBite,
    Severity,
    StrengthFinding,
    StrengthReport,
)
from phasegate.core.test_strength.page import MAX_DOUBTS, list_doubts
from phasegate.core.workflow.spending import Spending
from phasegate.engine.views.grounds import (
    DecisionGrounds,
    PackageGrounds,
    render_grounds,
    summarize_checks,
)
from phasegate.workspace.commit_log import FileStat

EVIDENCE = """# Evidence
- changes: passed - 2 files changed
    a.py, b.py
- lint: failed - exit status 1
- test: passed - 7 tests ran and passed (pytest)
- coverage: not asked for - no threshold is set
"""


def test_the_check_summary_names_failures_first_then_the_tests_then_the_rest() -> None:
    assert [*summarize_checks(EVIDENCE)] == [
        "lint: FAILED - exit status 1",
        "test: 7 tests ran and passed (pytest)",
        "2 checks passed: changes, test",
    ]


def test_the_grounds_say_what_changed_which_requirement_which_tests_and_the_cost() -> None:
    requirement = RequirementTrace(
        id="FR-1",
        text="Say goodbye",
        priority=None,
        packages=("WP01",),
        commits=(),
        tests=(TestLink(path="test_a.py", package="WP01", names_it=True),),
    )
    package = PackageGrounds(
        id="WP01",
        title="Words",
        state="DONE",
        verdict="PASS",
        rounds=2,
        checks=("test: 7 passed",),
        doubts=("flaky: test_b",),
    )
    text = "\n".join(
        render_grounds(
            DecisionGrounds(
                feature="001-a",
                request="Say goodbye to people",
                asked="Merge 001-a into main?",
                since="2026-01-01T00:00:00.000Z",
                reason="",
                findings="",
                remediation="",
                files=(FileStat(path="a.py", added=5, deleted=1),),
                documents=3,
                packages=(package,),
                checks=("11-local-testing: test passed on 0123456789ab",),
                requirements=(requirement,),
                untraced="",
                spent=Spending(tokens=1200, cost_usd=0.5),
                agent_runs=4,
                effects={"complete": "archive the feature and MERGE it"},
            )
        )
    )
    for expected in (
        "Merge 001-a into main?",
        "Weakest evidence:\n  WP01: flaky: test_b\n  WP01: all of it: phasegate show WP01 --evidence\n\n"
        "Changes (1 files, +5 -1):\n  a.py  +5 -1\n  and 3 documents of the feature",
        "WP01  DONE, review: PASS, round 2  Words",
        "WP01: test: 7 passed",
        "FR-1  Say goodbye\n      WP01; tests: test_a.py",
        "4 agent runs, 0.50 USD, 1 200 tokens",
        "complete: archive the feature and MERGE it",
    ):
        assert expected in text


@pytest.mark.demand("E5.a")
def test_the_doubts_of_a_package_are_listed_with_the_worst_first() -> None:
    lost, loose, odd = (
        StrengthFinding(kind=kind, severity=severity, text=kind)
        for kind, severity in (
            ("lost test", Severity.REJECT),
            ("loosened assertion", Severity.ASK),
            ("changed CI", Severity.REJECT),
        )
    )
    survivor = MutantResult(
        path="a.py", line=3, kind="boundary", before="a < b", after="a <= b", killed=False
    )
    report = StrengthReport(
        findings=(loose, odd, lost),
        requirements=(RequirementBite("FR-1", (), ("test_a",)), RequirementBite("FR-2")),
        mutants=(survivor,),
        flaky=(FlakyTest(test="test_b", passed=2, failed=1, on_base=True),),
        notes=("2 mutants were not tried",),
        accepted={odd.id: "agreed"},
    )
    assert list_doubts(report) == [
        str(lost),
        f"accepted by you: {odd} (agreed)",
        f"answered by the reviewer: {loose}",
        "no test notices FR-2",
        "no test notices a.py:3 boundary: a < b -> a <= b",
        "flaky: test_b: passed 2 times, failed 1 times, also on the base",
        "not measured: 2 mutants were not tried",
    ]
    many = StrengthReport(notes=tuple(str(number) for number in range(20)))
    assert list_doubts(many)[MAX_DOUBTS:] == ["and 10 more"]
    assert list_doubts(StrengthReport()) == []
