"""When a limit ends, read from foreign words; and what errors of a model's service mean."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.agents.port import Ending
from phasegate.agents.stream.api_error import ReportedError, format_error, interpret_error
from phasegate.agents.stream.rate_limit_reset import MAX_RESET_DELAY_S, find_reset_time_s

NOW = datetime(2026, 11, 16, 13, 30, tzinfo=UTC)
NOW_S = NOW.timestamp()
MINUTE, HOUR, DAY = 60, 3_600, 86_400

TOLD = [
    ("429 Too Many Requests, retry after 60s", 60),
    ("retry-after: 7", 7),
    ("Please retry in 34.5s.", 34.5),
    ('"retryDelay": "34s"', 34),
    ("Your quota will reset after 2h5m3s.", 2 * HOUR + 5 * MINUTE + 3),
    ("try again in 3 days 4 hours 5 minutes.", 3 * DAY + 4 * HOUR + 5 * MINUTE),
    ("Try again in 1 hour and 5 minutes", HOUR + 5 * MINUTE),
    ("Claude AI usage limit reached|1794841200", 1794841200 - NOW_S),
    ("You've hit your limit · resets 3pm (UTC)", 90 * MINUTE),
    ("resets at 1:15pm", DAY - 15 * MINUTE),
    ("try again at 15:30", 2 * HOUR),
    ("You've hit your session limit · resets 4:30pm (Europe/Berlin)", 2 * HOUR),
    ("try again at Nov 18th, 2026 1:30 PM.", 2 * DAY),
    ("resets at 2026-11-16T14:30:00Z", HOUR),
]


@pytest.mark.demand("D10.a")
@pytest.mark.parametrize(("text", "in_s"), TOLD)
def test_the_end_of_a_limit_is_read(text: str, in_s: float) -> None:
    found = find_reset_time_s(text, NOW_S, UTC)
    assert found is not None
    assert found - NOW_S == pytest.approx(in_s, abs=0.01)


UNTOLD = [
    "",
    "429",
    "the limit resets soon",
    "resets at 99:99",
    "try again at Feb 31st, 2027 1:00 PM",
    "resets 3pm (Nowhere/Atall)",
    "retry after 99999 days",
    "limit reached|1000000000",
    "resets at 2020-01-01T00:00:00Z",
]


@pytest.mark.parametrize("text", UNTOLD)
def test_a_text_that_does_not_say_it_or_makes_no_sense_says_nothing(text: str) -> None:
    assert find_reset_time_s(text, NOW_S, UTC) is None


@given(st.text(max_size=60), st.sampled_from([text for text, _ in TOLD]), st.integers(0, 60))
def test_no_text_raises_or_leads_far_away(noise: str, told: str, at: int) -> None:
    found = find_reset_time_s(noise[:at] + told[:at] + noise[at:], NOW_S, UTC)
    assert found is None or NOW_S - 1 <= found <= NOW_S + MAX_RESET_DELAY_S


MEANINGS = [
    ("bad request", 400, Ending.FAILED),
    ("no", 401, Ending.NOT_RUNNABLE),
    ("no", 403, Ending.NOT_RUNNABLE),
    ("slow down", 429, Ending.RATE_LIMITED),
    ("overloaded", 529, Ending.RATE_LIMITED),
    ("oops", 500, Ending.TRANSIENT),
    ("oops", 503, Ending.TRANSIENT),
    ("model not found", 404, Ending.FAILED),
    ("Your credit balance is too low", 400, Ending.NOT_RUNNABLE),
    ("You exceeded your current quota: insufficient_quota", 429, Ending.NOT_RUNNABLE),
    ("Not logged in · Please run /login", None, Ending.NOT_RUNNABLE),
    ("Invalid API key", None, Ending.NOT_RUNNABLE),
    ("You've hit your usage limit. Try again at 3pm.", None, Ending.RATE_LIMITED),
    ("stream disconnected before completion", None, Ending.TRANSIENT),
    ("connect ECONNREFUSED", None, Ending.TRANSIENT),
    ("Connection reset by server", None, Ending.TRANSIENT),
    ("Reached maximum number of turns (400)", None, Ending.FAILED),
    ("something else", None, Ending.FAILED),
    ("", None, Ending.FAILED),
]


@pytest.mark.demand("D10.a", "D10.b")
@pytest.mark.parametrize(("message", "status", "ending"), MEANINGS)
def test_an_error_of_the_service_has_its_meaning(
    message: str, status: int | None, ending: Ending
) -> None:
    meaning = interpret_error(ReportedError(message, status), "Sign in.", NOW_S)
    assert meaning.ending is ending
    assert bool(meaning.remedy) is (ending is Ending.NOT_RUNNABLE)


def test_an_error_is_shown_in_one_bounded_line_with_its_status() -> None:
    assert format_error(ReportedError("a\n b", 400)) == "HTTP 400: a b"
    assert format_error(ReportedError("status 400", 400)) == "status 400"
    assert len(format_error(ReportedError("x" * 10_000))) == 300
    assert format_error(ReportedError(""))
