"""Which checks of a forge let a pull request be merged."""

from __future__ import annotations

import pytest

from phasegate.core.forge.approvals import is_given_for_head
from phasegate.core.forge.checks import Check, CheckPolicy, CheckState, CommitChecks, judge_checks

OWN = Check("phasegate", CheckState.PASSED)
GREEN = Check("ci/test", CheckState.PASSED)
RED = Check("lint", CheckState.FAILED)
BUSY = Check("ci/slow", CheckState.RUNNING)


def judge(
    *found: Check,
    policy: CheckPolicy | tuple[str, ...] = CheckPolicy.ANY,
    required: tuple[str, ...] = (),
    base_has_checks: bool = True,
) -> bool | None:
    checks = CommitChecks(found=found, required=required, base_has_checks=base_has_checks)
    return judge_checks(checks, policy, "main").passed


@pytest.mark.demand("X7.f")
def test_our_own_status_never_counts_as_a_green_check() -> None:
    assert judge(OWN, GREEN) is True
    assert judge(OWN) is None
    assert judge(OWN, policy=("phasegate", "ci/test")) is None
    assert judge(OWN, policy=("phasegate",)) is None


@pytest.mark.demand("X7.f")
def test_every_check_that_registered_must_pass_whatever_is_named() -> None:
    for policy in (CheckPolicy.ANY, CheckPolicy.NONE, ("ci/test",)):
        assert judge(GREEN, policy=policy) is True
        assert judge(GREEN, RED, policy=policy) is False
        assert judge(GREEN, BUSY, policy=policy) is None


@pytest.mark.demand("X7.f")
def test_named_and_required_checks_are_waited_for_until_they_register() -> None:
    assert judge(GREEN, policy=("ci/test", "ci/deploy")) is None
    assert judge(GREEN, required=("ci/other",)) is None
    assert judge(GREEN, required=("ci/*",)) is True
    assert judge(required=("phasegate",), policy=CheckPolicy.NONE) is True


def test_a_base_without_ci_needs_a_setting_or_a_person() -> None:
    none = judge_checks(CommitChecks(base_has_checks=False), CheckPolicy.ANY, "main")
    assert (none.passed, none.needs_user) == (None, True)
    assert 'checks = "none"' in none.reason
    assert judge(base_has_checks=False, policy=CheckPolicy.NONE) is True
    assert judge_checks(CommitChecks(), CheckPolicy.ANY, "main").needs_user is False


def test_red_checks_are_named() -> None:
    assert (
        judge_checks(CommitChecks(found=(RED,)), CheckPolicy.ANY, "m").reason == "CI is red: lint"
    )


@pytest.mark.parametrize(
    ("approved_at_s", "pushed_at_s", "counts"),
    [(2.0, 1.0, True), (1.0, 1.5, False), (None, 1.0, False), (1.0, None, False)],
)
@pytest.mark.parametrize("was_moved", [True, False])
def test_an_approval_counts_if_it_was_given_after_the_push_of_the_head(
    approved_at_s: float | None, pushed_at_s: float | None, counts: bool, was_moved: bool
) -> None:
    assert is_given_for_head(approved_at_s, pushed_at_s, was_moved=was_moved) is counts


def test_an_approval_in_the_second_of_the_push_counts_for_the_only_head() -> None:
    assert is_given_for_head(1.0, 1.0, was_moved=False)
    assert not is_given_for_head(1.0, 1.0, was_moved=True)
