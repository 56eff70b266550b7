"""Which failures are tried again, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.machine.retry import (
    MAX_RETRY_BACKOFF_S,
    Fault,
    classify_failure,
    retry_backoff_s,
)
from support.growth import assert_grows_no_faster_than_its_input

TRANSIENT = [
    ("npm error code ECONNRESET", Fault.NETWORK),
    ("fatal: unable to access 'https://x/': Could not resolve host: x", Fault.NETWORK),
    ("urllib3: Read timed out. (read timeout=15)", Fault.NETWORK),
    ("dial tcp 10.0.0.1:443: i/o timeout", Fault.NETWORK),
    ("HTTP 503 Service Unavailable", Fault.NETWORK),
    ("fatal: Unable to create '/r/.git/index.lock': File exists.", Fault.LOCK),
    ("sqlite3.OperationalError: database is locked", Fault.LOCK),
    ("API Error: 429 Too Many Requests", Fault.RATE_LIMIT),
    ('{"type":"error","error":{"type":"rate_limit_error"}}', Fault.RATE_LIMIT),
    ("status 429: try again in 30s", Fault.RATE_LIMIT),
]
PERMANENT = [
    "",
    "SyntaxError: invalid syntax",
    "FR-AUTH-001 cannot be satisfied",
    "assert timeout == 30",
    "the door is locked",
    "1429 tests",
    "error in line 429 of the file",
    "network.py:12: TypeError",
]


@pytest.mark.demand("D10.a")
@pytest.mark.parametrize(("text", "fault"), TRANSIENT)
def test_a_failure_that_may_pass_is_recognised(text: str, fault: Fault) -> None:
    assert classify_failure(1, f"working\n{text}\n") is fault


@pytest.mark.demand("D10.b")
@pytest.mark.parametrize("text", PERMANENT)
def test_any_other_failure_is_permanent(text: str) -> None:
    assert classify_failure(1, text) is Fault.PERMANENT


@pytest.mark.demand("D10.a")
def test_a_program_can_ask_to_be_called_again() -> None:
    assert classify_failure(75, "") is Fault.TEMPORARY


@pytest.mark.demand("D10.b")
def test_a_run_that_was_killed_is_not_tried_again() -> None:
    assert classify_failure(None, "ECONNRESET") is Fault.PERMANENT


def test_only_the_end_of_the_output_is_asked() -> None:
    assert classify_failure(1, "ECONNRESET" + "x" * 100_000) is Fault.PERMANENT


@pytest.mark.demand("D10.a")
@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_wait_grows_up_to_a_cap_and_is_never_negative(attempt: int, chance: float) -> None:
    wait_s = retry_backoff_s(attempt, chance)
    assert 0 <= wait_s <= MAX_RETRY_BACKOFF_S
    assert wait_s <= retry_backoff_s(attempt + 1, chance)


@pytest.mark.demand("D10.a")
def test_the_whole_wait_is_jitter() -> None:
    assert retry_backoff_s(3, 0.0) == 0
    assert retry_backoff_s(3, 0.5) == 4
    assert [retry_backoff_s(n, 1.0) for n in (1, 2, 3, 4)] == [2, 4, 8, 16]


def test_classifying_grows_with_the_text_at_most() -> None:
    def floods(size: int) -> list[str]:
        return [
            "http " * size,
            "status" + " :=/.0" * size,
            "rate limit " * size,
            "could not get " * size,
        ]

    def classify_all(texts: list[str]) -> None:
        for text in texts:
            classify_failure(1, text)

    assert_grows_no_faster_than_its_input(classify_all, floods, 10_000, 80_000)
