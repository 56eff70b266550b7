"""What the end of an agent's run means: how it ended, its answer and its blockers.

Files and checks count later.
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
    """What was seen of a run's end, but for its answer."""

    job: str
    package: str | None
    role: str
    # It came to its own end
    completed: bool
    # It did not, for a reason that may pass by itself
    transient: bool
    reason: str
    remedy: str
    # `BLOCKER:` lines, wherever they stood
    blockers: tuple[str, ...] = ()
    # How, if it was told to stop before it ended
    stop_reason: str = ""
    # Of a limit of its provider, where that is known
    limit_reset_at_s: float = 0.0
    # That it was given alone, and owes a status each
    tasks: tuple[str, ...] = ()
    # Its answer before this one could not be used
    asked_again: bool = False


class JobVerdict(NamedTuple):
    """How a job counts, why, and what to do."""

    end: JobEndKind
    reason: str = ""
    remediation: str = ""


class RateLimitWait(NamedTuple):
    """A wait for a limit of the provider, should there be one."""

    now_s: float
    # As people read it
    until_text: str
    # Another agent goes on meanwhile
    has_fallback_agent: bool


def classify_job_end(
    observed: ObservedEnd, answer: Answer, limit_wait: RateLimitWait
) -> JobVerdict:
    """What the end of a run means. Nothing but its own end with a valid answer is DONE."""
    verdict = _classify_without_limit(observed, answer)
    if verdict.end is JobEndKind.TRANSIENT and observed.limit_reset_at_s > limit_wait.now_s:
        return _classify_rate_limited(verdict.reason, observed.limit_reset_at_s, limit_wait)

    # Asked again, it would use up its time again
    if verdict.end is JobEndKind.UNREADABLE and observed.stop_reason:
        return verdict._replace(
            end=JobEndKind.FAILED, reason=f"{observed.stop_reason}: {verdict.reason}"
        )

    return verdict


def _classify_without_limit(observed: ObservedEnd, answer: Answer) -> JobVerdict:
    """What an agent says outright goes before what its last words look like.

    A blocker is not tried again.
    """
    response = answer.response

    if response is not None and not response.success:
        if refused := _find_result_problems(observed, response):
            return JobVerdict(JobEndKind.UNREADABLE, refused)

        reason = response.blocked_reason or response.error or "it failed"
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
    """An implementer owes the JSON result of this very job, and a status for each task that agrees
    with it.
    """
    if answer.response is None:
        return JobVerdict(JobEndKind.UNREADABLE, answer.result_error or "there is no JSON result")

    why = _find_result_problems(observed, answer.response) or _find_task_problem(observed, answer)
    if why:
        return JobVerdict(JobEndKind.UNREADABLE, why)

    return JobVerdict(JobEndKind.DONE)


def _find_task_problem(observed: ObservedEnd, answer: Answer) -> str:
    """Why the task statuses and a success cannot both stand.

    A missing one is asked for once, if there is time.
    """
    said = answer.task_statuses
    failed = [name for name, status in said.items() if status is TaskStatus.FAILED]
    if failed:
        return f"the result says success, but FAILED is the status of task {', '.join(failed[:MAX_TASKS_NAMED])}"

    missing = [name for name in observed.tasks if name not in said]
    if missing and not observed.asked_again and not observed.stop_reason:
        return f"there is no task_status line for task {', '.join(missing[:MAX_TASKS_NAMED])}"

    return ""


def _find_result_problems(observed: ObservedEnd, response: AgentResponse) -> str:
    refused = check_result(response, observed.job, observed.package)
    if refused:
        return f"the JSON result is refused: {', '.join(refused)}"
    return ""


def _classify_rate_limited(
    reason: str, limit_reset_at_s: float, limit_wait: RateLimitWait
) -> JobVerdict:
    """A limit of the provider is waited for, if it is lifted soon enough or another agent goes on
    meanwhile.
    """
    if (
        limit_wait.has_fallback_agent
        or limit_reset_at_s - limit_wait.now_s <= MAX_RATE_LIMIT_WAIT_S
    ):
        return JobVerdict(
            JobEndKind.RATE_LIMITED, f"{reason}; it rests until {limit_wait.until_text}"
        )

    return JobVerdict(
        JobEndKind.FAILED,
        f"{reason}; not lifted until {limit_wait.until_text}",
        "resolve then, or give the agent a fallback",
    )
