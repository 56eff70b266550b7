"""The grounds of a decision, as text."""

from __future__ import annotations

import pytest

from phasegate.core.plan.trace import RequirementTrace, TestLink
from phasegate.core.test_strength.model import (
    FlakyTest,
    MutantResult,
    RevertedRequirement,
    Severity,
    StrengthFinding,
    StrengthReport,
)
from phasegate.core.test_strength.page import MAX_DOUBTS, list_doubts
from phasegate.core.workflow.spending import Spending
from phasegate.engine.views.check_lines import CheckLine, parse_check_lines, summarize_checks
from phasegate.engine.views.decision_grounds import (
    DecisionGrounds,
    FeatureFile,
    PackageGrounds,
    render_grounds,
)
from phasegate.engine.views.refused import RefusedChange

EVIDENCE = """# Evidence
- changes: passed - 2 files changed
    a.py, b.py
- lint: failed - exit status 1
- test: passed - 7 tests ran and passed (pytest)
  - 7 passed, 0 failed, 0 skipped; before the work: 5 passed, 0 failed, 0 skipped
  - whole output: test.log in a reviewer's folder, kept in .phasegate/checks/001-a-WP01
- coverage: not asked for - no threshold is set
"""


def test_the_check_summary_names_failures_first_then_the_tests_then_the_rest() -> None:
    checks = parse_check_lines(EVIDENCE)
    assert checks[2].log == ".phasegate/checks/001-a-WP01"
    assert [*summarize_checks(checks)] == [
        "lint: FAILED - exit status 1",
        "test: 7 tests ran and passed (pytest); before the work: 5 passed, 0 failed, 0 skipped",
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
        checks=(CheckLine(name="test", outcome="passed", summary="7 passed"),),
        doubts=("flaky: test_b",),
    )
    refused = package._replace(
        id="WP02", state="BLOCKED", verdict="MAJOR_ISSUES", doubts=(), findings="- a.py:2: wrong\n"
    )
    text = "\n".join(
        render_grounds(
            DecisionGrounds(
                feature="001-a",
                request="Say goodbye to people",
                asked="Merge 001-a into main?",
                since="2026-01-01T00:00:00.000Z",
                waiting_s=300,
                reason="",
                findings="",
                remediation="",
                refused=(
                    RefusedChange(
                        package="WP02",
                        path="b.py",
                        why="added, but not in the file scope",
                        diff="+x = 1\n",
                        command="phasegate scope allow WP02 b.py --reason y",
                    ),
                ),
                files=(
                    FeatureFile(
                        path="a.py", added=5, deleted=1, packages=("WP01",), requirements=("FR-1",)
                    ),
                ),
                documents=3,
                packages=(package, refused),
                checks=("11-local-testing: test passed on 0123456789ab",),
                requirements=(requirement,),
                untraced="",
                spent=Spending(tokens=1200, cost_usd=0.5),
                agent_runs=4,
                effects={"complete": "archive the feature and MERGE it"},
                whole=parse_check_lines(EVIDENCE),
                summary=("tests: 7 passed; before: 5 passed",),
                prompt_tokens=16_500,
            )
        )
    )
    for expected in (
        "Merge 001-a into main?",
        "since: 5 min ago",
        "WP02  b.py: added, but not in the file scope\n      +x = 1",
        "accept it: phasegate scope allow WP02 b.py --reason y && phasegate run --feature 001\n",
        "Weakest evidence:\n  WP01: flaky: test_b\n  WP01: all of it: phasegate show WP01 --evidence\n\n"
        "Changes (1 file, +5 -1):\n  a.py  +5 -1  (WP01, FR-1)\n  and 3 documents of the feature",
        "WP01  DONE, review: PASS, round 2  Words",
        "WP01: test: 7 passed",
        "Findings:\n  WP02: - a.py:2: wrong\n",
        "FR-1  Say goodbye\n      WP01; tests: test_a.py",
        "4 agent runs with prompts of 16 500 tokens, 0.50 USD, 1 200 tokens",
        "phasegate complete: archive the feature and MERGE it",
        "In short:\n  tests: 7 passed; before: 5 passed\n",
        "the whole change: test: 7 tests ran and passed (pytest); before the work: 5 passed",
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
        requirements=(RevertedRequirement("FR-1", (), ("test_a",)), RevertedRequirement("FR-2")),
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
