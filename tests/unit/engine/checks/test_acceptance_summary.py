"""What the evidence says about sealed tests that pass."""

from __future__ import annotations

from phasegate.engine.checks.acceptance import RequirementRow, describe_passed_tests


def test_a_requirement_whose_sealed_test_was_dropped_is_not_counted_as_tested() -> None:
    row = RequirementRow(
        requirement="FR-A-001", revision="12", tests=("t",), tree="34", outcome="passed"
    )
    both = describe_passed_tests(("FR-A-001", "FR-A-002"), [row])
    assert both.summary == "the sealed tests of 1 requirements pass"
    assert both.notes == (
        "FR-A-001 (12): passed",
        "FR-A-002: no sealed test, judge it by the change",
    )
    assert describe_passed_tests(("FR-A-001",), [row]).notes == ("FR-A-001 (12): passed",)


def test_requirements_of_other_packages_are_left_out() -> None:
    rows = [
        RequirementRow(requirement=name, revision="12", tests=("t",), tree="34", outcome=outcome)
        for name, outcome in (("FR-A-001", "passed"), ("FR-B-001", "failed"))
    ]
    check = describe_passed_tests(("FR-A-001",), rows)
    assert check.notes == ("FR-A-001 (12): passed",)
