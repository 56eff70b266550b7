"""What the end of a job means: only a normal end with a valid answer and no blocker is DONE."""

from __future__ import annotations

from itertools import product

import pytest

from phasegate.agents.port import AgentReport, Ending, FinishedRun
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.machine.rate_limit_wait import MAX_RATE_LIMIT_WAIT_S
from phasegate.engine.jobs.job_end import interpret_job_end
from support.job_ends import implementer, judged_implementer, result

SUCCESS, FAILURE, NONE = result(success=True), result(success=False), "All is done.\n"
NOW_S = 1000.0


@pytest.mark.demand("D7.a", "D7.g", "D7.i")
def test_only_a_clean_end_with_a_success_and_no_blocker_is_done() -> None:
    for ending, answer, blockers, stderr in product(
        Ending, (SUCCESS, FAILURE, NONE, ""), ((), ("no access",)), ("", "BLOCKER: no key\n")
    ):
        report = AgentReport(answer, ending, "why", blockers=blockers)
        end = judged_implementer(report, FinishedRun(0, answer, stderr))
        is_done = ending is Ending.COMPLETED and answer == SUCCESS and not blockers and not stderr
        assert (end.outcome is JobEndKind.DONE) is is_done, (ending, answer, blockers, stderr)
        assert is_done or end.reason


@pytest.mark.demand("D7.a")
def test_the_success_of_another_job_is_not_taken() -> None:
    other = result(success=True, job="00000000-0000-4000-8000-000000000000")
    end = judged_implementer(AgentReport(other, Ending.COMPLETED), FinishedRun(0, other, ""))
    assert end.outcome is JobEndKind.UNREADABLE
    assert "invalid" in end.reason


@pytest.mark.demand("D7.a")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("<review>PASS</review>\n", JobEndKind.DONE),
        ("It is fine.\n", JobEndKind.UNREADABLE),
    ],
)
def test_a_reviewer_owes_a_verdict_and_no_result(answer: str, outcome: JobEndKind) -> None:
    reviewer = implementer()._replace(role="review", package=None)
    report, finished = AgentReport(answer, Ending.COMPLETED), FinishedRun(0, answer, "")
    end = interpret_job_end(reviewer, report, finished, has_fallback=False, now_s=NOW_S)
    assert end.outcome is outcome


@pytest.mark.demand("D10.a")
def test_explicit_statements_count_more_than_a_temporary_failure() -> None:
    flaky = FinishedRun(1, "", "")
    transient = judged_implementer(AgentReport("", Ending.TRANSIENT, "network"), flaky)
    assert (transient.outcome, transient.reason) == (JobEndKind.TRANSIENT, "network")
    named = AgentReport("", Ending.TRANSIENT, "network", blockers=("no key", "no key"))
    blocked = judged_implementer(named, flaky)
    assert (blocked.outcome, blocked.reason) == (JobEndKind.BLOCKED, "no key")
    stated = judged_implementer(AgentReport(FAILURE, Ending.TRANSIENT, "network"), flaky)
    assert (stated.outcome, stated.reason) == (JobEndKind.BLOCKED, "no access")


@pytest.mark.parametrize(
    ("reset_in_s", "has_fallback", "outcome"),
    [
        (MAX_RATE_LIMIT_WAIT_S, False, JobEndKind.RATE_LIMITED),
        (MAX_RATE_LIMIT_WAIT_S + 1, False, JobEndKind.FAILED),
        (MAX_RATE_LIMIT_WAIT_S + 1, True, JobEndKind.RATE_LIMITED),
    ],
)
def test_a_limit_is_waited_for_unless_it_lasts_too_long_and_there_is_no_fallback(
    reset_in_s: float, has_fallback: bool, outcome: JobEndKind
) -> None:
    report = AgentReport("", Ending.RATE_LIMITED, "429", retry_at_s=NOW_S + reset_in_s)
    end = interpret_job_end(implementer(), report, FinishedRun(1, "", ""), has_fallback, NOW_S)
    assert end.outcome is outcome
    assert end.reason.startswith("429; rate-limited until ")
    assert end.retry_at_s == (report.retry_at_s if outcome is JobEndKind.RATE_LIMITED else 0)


@pytest.mark.parametrize("retry_at_s", [None, NOW_S - 1])
def test_without_a_reset_time_each_limit_in_a_row_doubles_the_wait(
    retry_at_s: float | None,
) -> None:
    report = AgentReport("", Ending.SILENT, "429", retry_at_s=retry_at_s)
    waits_s = [
        interpret_job_end(
            implementer(), report, FinishedRun(1, "", ""), False, NOW_S, limits
        ).retry_at_s
        - NOW_S
        for limits in (0, 1)
    ]
    assert waits_s[1] == 2 * waits_s[0] > 0


def test_a_job_that_was_stopped_early_is_not_asked_again_for_its_answer() -> None:
    report = AgentReport("half", Ending.COMPLETED)
    stopped = FinishedRun(0, "half", "", sigterm_sent=True, timed_out=True, duration_s=5)
    assert judged_implementer(report, stopped).outcome is JobEndKind.FAILED
    control = judged_implementer(report, FinishedRun(0, "half", ""))
    assert control.outcome is JobEndKind.UNREADABLE
