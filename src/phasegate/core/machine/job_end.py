"""Classify the end of a job from its process result, its answer and its blockers.

Changed files and checks are evaluated later.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.answer.json_result import AgentResponse, check_result
from phasegate.core.answer.parse import Answer
from phasegate.core.answer.vocabulary import TaskStatus
from phasegate.core.machine.package_events import JobEndKind

MAX_RATE_LIMIT_WAIT_S = 12 * 3600.0
MAX_TASKS_NAMED = 20


class ObservedEnd(NamedTuple):
    """Observed facts about the end of a job, without its answer."""

    job: str
    package: str | None
    role: str
    # The process ended normally
    completed: bool
    # The process failed for a temporary reason
    transient: bool
    reason: str
    remedy: str
    # `BLOCKER:` lines from any part of the output
    blockers: tuple[str, ...] = ()
    # Why it was asked to stop, if it was
    stop_reason: str = ""
    # When the rate limit of the provider ends; 0 if unknown
    limit_reset_at_s: float = 0.0
    # Tasks of this agent; each needs a status
    tasks: tuple[str, ...] = ()
    # The previous answer could not be parsed
    asked_again: bool = False


class JobVerdict(NamedTuple):
    """How a job end is counted, why, and the remedy."""

    end: JobEndKind
    reason: str = ""
    remediation: str = ""


class RateLimitWait(NamedTuple):
    """Facts needed to decide whether a rate limit is waited for."""

    now_s: float
    # End of the limit as local time
    until_text: str
    # Another agent can do the work until then
    has_fallback_agent: bool


def classify_job_end(
    observed: ObservedEnd, answer: Answer, limit_wait: RateLimitWait
) -> JobVerdict:
    """Classify the end of a job. Only a normal end with a valid answer is DONE."""
    verdict = _classify_without_limit(observed, answer)
    if verdict.end is JobEndKind.TRANSIENT and observed.limit_reset_at_s > limit_wait.now_s:
        return _classify_rate_limited(verdict.reason, observed.limit_reset_at_s, limit_wait)

    # It ran out of time once; asked again, it would do so again
    if verdict.end is JobEndKind.UNREADABLE and observed.stop_reason:
        return verdict._replace(
            end=JobEndKind.FAILED, reason=f"{observed.stop_reason}: {verdict.reason}"
        )

    return verdict


def _classify_without_limit(observed: ObservedEnd, answer: Answer) -> JobVerdict:
    """Classify by explicit statements of the agent first, then by how the process ended.

    A blocker that the agent reports is not retried.
    """
    response = answer.response

    if response is not None and not response.success:
        if problem := _find_result_problems(observed, response):
            return JobVerdict(JobEndKind.UNREADABLE, problem)

        reason = response.blocked_reason or response.error or "the agent failed"
        return JobVerdict(JobEndKind.BLOCKED, reason, response.remediation or "")

    if observed.blockers:
        return JobVerdict(JobEndKind.BLOCKED, "; ".join(dict.fromkeys(observed.blockers)))
    if observed.transient:
        return JobVerdict(JobEndKind.TRANSIENT, observed.reason, "wait, then dispatch again")
    if not observed.completed:
        return JobVerdict(JobEndKind.FAILED, observed.reason, observed.remedy)
    if answer.error:
        return JobVerdict(JobEndKind.UNREADABLE, answer.reason)
    if observed.role == "implement":
        return _check_response(observed, answer)

    return JobVerdict(JobEndKind.DONE)


def _check_response(observed: ObservedEnd, answer: Answer) -> JobVerdict:
    """Require the JSON result of this job, and task statuses that agree with it."""
    if answer.response is None:
        return JobVerdict(JobEndKind.UNREADABLE, answer.result_error or "there is no JSON result")

    problem = _find_result_problems(observed, answer.response) or _find_task_problem(
        observed, answer
    )
    if problem:
        return JobVerdict(JobEndKind.UNREADABLE, problem)

    return JobVerdict(JobEndKind.DONE)


def _find_task_problem(observed: ObservedEnd, answer: Answer) -> str:
    """Return why the task statuses contradict a success, or "".

    A missing status is requested once, if there is time.
    """
    statuses = answer.task_statuses
    failed = [name for name, status in statuses.items() if status is TaskStatus.FAILED]
    if failed:
        names = ", ".join(failed[:MAX_TASKS_NAMED])
        return f"the result says success, but the status of these tasks is FAILED: {names}"

    missing = [name for name in observed.tasks if name not in statuses]
    if missing and not observed.asked_again and not observed.stop_reason:
        return f"task_status lines are missing for: {', '.join(missing[:MAX_TASKS_NAMED])}"

    return ""


def _find_result_problems(observed: ObservedEnd, response: AgentResponse) -> str:
    problems = check_result(response, observed.job, observed.package)
    if problems:
        return f"the JSON result is invalid: {', '.join(problems)}"
    return ""


def _classify_rate_limited(
    reason: str, limit_reset_at_s: float, limit_wait: RateLimitWait
) -> JobVerdict:
    """Wait for a rate limit that ends soon enough, or while another agent can do the work."""
    if (
        limit_wait.has_fallback_agent
        or limit_reset_at_s - limit_wait.now_s <= MAX_RATE_LIMIT_WAIT_S
    ):
        return JobVerdict(
            JobEndKind.RATE_LIMITED, f"{reason}; rate-limited until {limit_wait.until_text}"
        )

    return JobVerdict(
        JobEndKind.FAILED,
        f"{reason}; rate-limited until {limit_wait.until_text}",
        "resolve after that, or configure a fallback agent",
    )
