"""When a run counts as a success: all three of exit status, response and manifest."""

from __future__ import annotations

from itertools import product

import pytest

from phasegate.rules.acceptance import RunFacts, reasons_against


@pytest.mark.demand("D7.g", "D7.i")
def test_only_all_three_together_make_a_success() -> None:
    for exit_status, response, manifest, blockers in product(
        (0, 1, 143, None), (True, False, None), (True, False, None), ((), ("no",))
    ):
        facts = RunFacts(
            exit_status=exit_status, response_success=response, manifest_passed=manifest, blockers=blockers
        )
        is_success = exit_status == 0 and response is True and manifest is True and not blockers
        assert (reasons_against(facts) == ()) is is_success, facts


@pytest.mark.demand("D7.g")
@pytest.mark.parametrize(("exit_status", "response"), [(0, False), (1, True), (None, True)])
def test_exit_status_and_response_that_disagree_are_no_success(exit_status: int | None, response: bool) -> None:
    facts = RunFacts(exit_status=exit_status, response_success=response, manifest_passed=True)
    assert len(reasons_against(facts)) == 1
