"""A forecast is an interval, and says what it comes from."""

from __future__ import annotations

from phasegate.core.workflow.forecast import PastRun, describe_forecast


def test_earlier_runs_give_the_interval_of_runs_and_tokens() -> None:
    past = [PastRun(11, 40_000), PastRun(19, 92_000), PastRun(14, 0)]
    text = describe_forecast(past, "feature", 7)
    assert text == (
        "Forecast: 11 to 19 agent runs, 40 000 to 92 000 tokens "
        "(from 3 earlier feature runs of this repository)"
    )


def test_one_run_is_no_interval() -> None:
    one = describe_forecast([PastRun(10, 1_001)], "quick", 5)
    assert "5 to 20 agent runs, 501 to 2 002 tokens (from 1 earlier quick run " in one


def test_without_a_record_the_interval_begins_with_the_least_runs_of_the_workflow() -> None:
    assert describe_forecast([], "quick", 5) == (
        "Forecast: 5 to 15 agent runs, 12 500 to 75 000 tokens "
        "(from the phases ahead; no earlier quick run is on record)"
    )
