"""What the end of an agent's run means: nothing but its own end with a valid answer is DONE."""

from __future__ import annotations

import json
from itertools import product

import pytest

from phasegate.core.answer.parse import parse_answer
from phasegate.core.machine.job_end import (
    MAX_RATE_LIMIT_WAIT_S,
    ObservedEnd,
    RateLimitWait,
    classify_job_end,
)
from phasegate.core.machine.package_events import JobEndKind

JOB = "11111111-1111-4111-8111-111111111111"
REST = RateLimitWait(1000.0, "15:00", has_fallback_agent=False)
FINE = ObservedEnd(
    JOB, "WP01", "implement", completed=True, transient=False, reason="", remedy="look"
)


def result(**fields: object) -> str:
    response = {"job_id": JOB, "wp_id": "WP01", "success": True, "status": "completed", **fields}
    return f"Done.\n```json\n{json.dumps(response)}\n```\n"


def judged(
    text: str, seen: ObservedEnd = FINE, rest: RateLimitWait = REST
) -> tuple[JobEndKind, str]:
    verdict = classify_job_end(seen, parse_answer(text, seen.role), rest)
    return verdict.end, verdict.reason


@pytest.mark.demand("D7.a", "D7.g")
def test_only_its_own_end_with_the_result_of_this_job_is_done() -> None:
    assert judged(result()) == (JobEndKind.DONE, "")
    for completed, transient, blocked in product((True, False), (True, False), (True, False)):
        seen = FINE._replace(
            completed=completed, transient=transient, blockers=("no key",) if blocked else ()
        )
        for text in (result(), result(job_id="another"), result(success=False), "no result", ""):
            end, _ = judged(text, seen)
            is_fine = completed and not transient and not blocked and text == result()
            assert (end is JobEndKind.DONE) == is_fine, (seen, text)


@pytest.mark.demand("D7.a")
def test_a_reviewer_owes_a_verdict_and_no_result() -> None:
    reviewer = FINE._replace(role="review", package=None)
    assert judged("<review>PASS</review>\n", reviewer)[0] is JobEndKind.DONE
    assert judged("It is fine.\n", reviewer)[0] is JobEndKind.UNREADABLE


@pytest.mark.demand("D10.a")
def test_what_it_says_outright_goes_before_what_may_pass_by_itself() -> None:
    flaky = FINE._replace(completed=False, transient=True, reason="network")
    assert judged("", flaky) == (JobEndKind.TRANSIENT, "network")
    assert judged("", flaky._replace(blockers=("no key", "no key"))) == (
        JobEndKind.BLOCKED,
        "no key",
    )
    assert (
        judged(result(success=False, status="blocked", blocked_reason="no key"), flaky)[0]
        is JobEndKind.BLOCKED
    )


def test_a_limit_is_waited_for_unless_it_lasts_too_long_and_nobody_stands_in() -> None:
    limited = FINE._replace(
        completed=False,
        transient=True,
        reason="429",
        limit_reset_at_s=1000.0 + MAX_RATE_LIMIT_WAIT_S,
    )
    assert judged("", limited) == (JobEndKind.RATE_LIMITED, "429; rate-limited until 15:00")
    week = limited._replace(limit_reset_at_s=limited.limit_reset_at_s + 1)
    assert judged("", week) == (JobEndKind.FAILED, "429; rate-limited until 15:00")
    assert judged("", week, REST._replace(has_fallback_agent=True))[0] is JobEndKind.RATE_LIMITED
    assert judged("", limited._replace(limit_reset_at_s=999.0)) == (JobEndKind.TRANSIENT, "429"), (
        "it is over already"
    )


def test_one_that_was_cut_short_is_not_asked_again_for_its_answer() -> None:
    assert (
        judged("half", FINE._replace(stop_reason="it ran out of time after 5 s"))[0]
        is JobEndKind.FAILED
    )
    assert judged("half")[0] is JobEndKind.UNREADABLE, "control: one that ended by itself is"
