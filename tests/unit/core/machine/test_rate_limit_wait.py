"""Waiting for the end of a rate limit."""

from __future__ import annotations

import pytest

from phasegate.core.machine.rate_limit_wait import (
    MAX_RATE_LIMIT_WAIT_S,
    decide_rate_limit_wait,
    rate_limit_backoff_s,
)


@pytest.mark.demand("D10.a")
def test_the_wait_doubles_with_each_limit_up_to_an_hour() -> None:
    assert [rate_limit_backoff_s(before) for before in range(4)] == [30.0, 60.0, 120.0, 240.0]
    assert rate_limit_backoff_s(20) == rate_limit_backoff_s(10**9) == 3600.0


@pytest.mark.parametrize("reported_s", [None, 0.0, 99.0, 100.0])
def test_a_missing_or_past_reset_time_is_replaced_by_the_back_off(reported_s: float | None) -> None:
    wait = decide_rate_limit_wait(reported_s, 100.0, previous_limits=1, has_fallback=False)
    assert wait == (160.0, True)


def test_a_limit_that_lasts_too_long_is_waited_for_only_with_a_fallback() -> None:
    late_s = MAX_RATE_LIMIT_WAIT_S + 1
    assert not decide_rate_limit_wait(
        late_s, 0.0, previous_limits=0, has_fallback=False
    ).should_wait
    assert decide_rate_limit_wait(late_s, 0.0, previous_limits=0, has_fallback=True).should_wait
