"""What the end of an agent's run means: how it ended, its answer and its blockers. Files and checks count later."""

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
    completed: bool  # it came to its own end
    transient: bool  # it did not, for a reason that may pass by itself
    reason: str
    remedy: str
    blockers: tuple[str, ...] = ()  # `BLOCKER:` lines, wherever they stood
    stop_reason: str = ""  # how, if it was told to stop before it ended
    limit_reset_at_s: float = 0.0  # of a limit of its provider, where that is known
    tasks: tuple[str, ...] = ()  # that it was given alone, and owes a status each
    asked_again: bool = False  # its answer before this one could not be used


class JobVerdict(NamedTuple):
    """How a job counts, why, and what to do."""

    end: JobEndKind
    reason: str = ""
    remediation: str = ""


class RateLimitWait(NamedTuple):
    """A wait for a limit of the provider, should there be one."""

    now_s: float
    until_text: str  # as people read it
    has_fallback_agent: bool  # another agent goes on meanwhile


def classify_job_end(observed: ObservedEnd, answer: Answer, limit_wait: RateLimitWait) -> JobVerdict:
    """What the end of a run means. Nothing but its own end with a valid answer is DONE."""
    verdict = _classify_without_limit(observed, answer)
    if verdict.end is JobEndKind.TRANSIENT and observed.limit_reset_at_s > limit_wait.now_s:
        return _classify_rate_limited(verdict.reason, observed.limit_reset_at_s, limit_wait)
    if verdict.end is JobEndKind.UNREADABLE and observed.stop_reason:  # asked again, it would use up its time again
        return verdict._replace(end=JobEndKind.FAILED, reason=f"{observed.stop_reason}: {verdict.reason}")
    return verdict


def _classify_without_limit(observed: ObservedEnd, answer: Answer) -> JobVerdict:
    """What an agent says outright goes before what its last words look like: a blocker is not tried again."""
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
    return _check_response(observed, answer) if observed.role == "implement" else JobVerdict(JobEndKind.DONE)


def _check_response(observed: ObservedEnd, answer: Answer) -> JobVerdict:
    """An implementer owes the JSON result of this very job, and a status for each task that agrees with it."""
    if answer.response is None:
        return JobVerdict(JobEndKind.UNREADABLE, answer.result_error or "there is no JSON result")
    why = _find_result_problems(observed, answer.response) or _find_task_problem(observed, answer)
    return JobVerdict(JobEndKind.UNREADABLE, why) if why else JobVerdict(JobEndKind.DONE)


def _find_task_problem(observed: ObservedEnd, answer: Answer) -> str:
    """Why the task statuses and a success cannot both stand. A missing one is asked for once, if there is time."""
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
    return f"the JSON result is refused: {', '.join(refused)}" if refused else ""


def _classify_rate_limited(reason: str, limit_reset_at_s: float, limit_wait: RateLimitWait) -> JobVerdict:
    """A limit of the provider is waited for, if it is lifted soon enough or another agent goes on meanwhile."""
    if limit_wait.has_fallback_agent or limit_reset_at_s - limit_wait.now_s <= MAX_RATE_LIMIT_WAIT_S:
        return JobVerdict(JobEndKind.RATE_LIMITED, f"{reason}; it rests until {limit_wait.until_text}")
    return JobVerdict(
        JobEndKind.FAILED,
        f"{reason}; not lifted until {limit_wait.until_text}",
        "resolve then, or give the agent a fallback",
    )
