"""What the end of an agent's run means: how it ended, its answer and its blockers. Files and checks count later."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.answer.json_result import Response, check_result
from phasegate.core.answer.parse import Answer
from phasegate.core.answer.vocabulary import TaskStatus
from phasegate.core.machine.package_events import End

LONGEST_REST_S = 12 * 3600.0
MOST_TASKS_NAMED = 20


class SeenEnd(NamedTuple):
    """What was seen of a run's end, but for its answer."""

    job: str
    package: str | None
    role: str
    completed: bool  # it came to its own end
    transient: bool  # it did not, for a reason that may pass by itself
    reason: str
    remedy: str
    blockers: tuple[str, ...] = ()  # `BLOCKER:` lines, wherever they stood
    cut_short: str = ""  # how, if it was told to stop before it ended
    lifted_at_s: float = 0.0  # of a limit of its provider, where that is known
    tasks: tuple[str, ...] = ()  # that it was given alone, and owes a status each
    asked_again: bool = False  # its answer before this one could not be used


class JobVerdict(NamedTuple):
    """How a job counts, why, and what to do."""

    end: End
    reason: str = ""
    remediation: str = ""


class Rest(NamedTuple):
    """A wait for a limit of the provider, should there be one."""

    now_s: float
    until: str  # as people read it
    has_a_stand_in: bool  # another agent goes on meanwhile


def judge_end(seen: SeenEnd, answer: Answer, rest: Rest) -> JobVerdict:
    """What the end of a run means. Nothing but its own end with a valid answer is DONE."""
    verdict = _verdict(seen, answer)
    if verdict.end is End.TRANSIENT and seen.lifted_at_s > rest.now_s:
        return _at_a_limit(verdict.reason, seen.lifted_at_s, rest)
    if verdict.end is End.UNREADABLE and seen.cut_short:  # asked again, it would use up its time again
        return verdict._replace(end=End.FAILED, reason=f"{seen.cut_short}: {verdict.reason}")
    return verdict


def _verdict(seen: SeenEnd, answer: Answer) -> JobVerdict:
    """What an agent says outright goes before what its last words look like: a blocker is not tried again."""
    response = answer.response
    if response is not None and not response.success:
        if refused := _refusals(seen, response):
            return JobVerdict(End.UNREADABLE, refused)
        reason = response.blocked_reason or response.error or "it failed"
        return JobVerdict(End.BLOCKED, reason, response.remediation or "")
    if seen.blockers:
        return JobVerdict(End.BLOCKED, "; ".join(dict.fromkeys(seen.blockers)))
    if seen.transient:
        return JobVerdict(End.TRANSIENT, seen.reason, "wait, then dispatch again")
    if not seen.completed:
        return JobVerdict(End.FAILED, seen.reason, seen.remedy)
    if answer.error:
        return JobVerdict(End.UNREADABLE, answer.reason)
    return _about_response(seen, answer) if seen.role == "implement" else JobVerdict(End.DONE)


def _about_response(seen: SeenEnd, answer: Answer) -> JobVerdict:
    """An implementer owes the JSON result of this very job, and a status for each task that agrees with it."""
    if answer.response is None:
        return JobVerdict(End.UNREADABLE, answer.result_error or "there is no JSON result")
    why = _refusals(seen, answer.response) or _task_trouble(seen, answer)
    return JobVerdict(End.UNREADABLE, why) if why else JobVerdict(End.DONE)


def _task_trouble(seen: SeenEnd, answer: Answer) -> str:
    """Why the task statuses and a success cannot both stand. A missing one is asked for once, if there is time."""
    said = answer.task_statuses
    failed = [name for name, status in said.items() if status is TaskStatus.FAILED]
    if failed:
        return f"the result says success, but FAILED is the status of task {', '.join(failed[:MOST_TASKS_NAMED])}"
    missing = [name for name in seen.tasks if name not in said]
    if missing and not seen.asked_again and not seen.cut_short:
        return f"there is no task_status line for task {', '.join(missing[:MOST_TASKS_NAMED])}"
    return ""


def _refusals(seen: SeenEnd, response: Response) -> str:
    refused = check_result(response, seen.job, seen.package)
    return f"the JSON result is refused: {', '.join(refused)}" if refused else ""


def _at_a_limit(reason: str, lifted_at_s: float, rest: Rest) -> JobVerdict:
    """A limit of the provider is waited for, if it is lifted soon enough or another agent goes on meanwhile."""
    if rest.has_a_stand_in or lifted_at_s - rest.now_s <= LONGEST_REST_S:
        return JobVerdict(End.LIMITED, f"{reason}; it rests until {rest.until}")
    return JobVerdict(
        End.FAILED, f"{reason}; not lifted until {rest.until}", "resolve then, or give the agent a fallback"
    )
