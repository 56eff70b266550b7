"""Interpret the end of a job from its process, its report, its answer and its blockers.

Three records describe the end of a job: `FinishedRun` (what the process did), `AgentReport` (what
the harness read from its output) and `JobEnd` (what it means for the work). Changed files and
checks are evaluated later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.agents.port import AgentReport, Ending, FinishedRun, Usage
from phasegate.agents.stream.plain_output import describe_early_stop
from phasegate.core.answer.json_result import check_result
from phasegate.core.answer.parse import Answer, find_blockers, parse_answer
from phasegate.core.answer.vocabulary import TaskStatus
from phasegate.core.display.status import THEN_RUN
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.machine.rate_limit_wait import RateLimitWait, decide_rate_limit_wait
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.text.wording import join_names
from phasegate.engine.jobs.assignment import MAX_NAMES_SHOWN, JobAssignment
from phasegate.storage.rows import NewEvent

MAX_REASON_CHARS = 10_000


class JobEnd(NamedTuple):
    """The meaning of a job's end, and everything that the job returned."""

    outcome: JobEndKind
    answer: Answer
    finished: FinishedRun
    reason: str = ""
    remediation: str = ""
    cleanup_required: bool = False
    # As reported by the agent
    usage: Usage | None = None
    # End of a rate limit, in seconds since 1970
    retry_at_s: float = 0.0
    # `BLOCKER:` lines from any part of the output
    blockers: tuple[str, ...] = ()
    # Notices for the user
    notices: tuple[str, ...] = ()
    # Journal rows that are appended in the same step as the end
    rows: tuple[NewEvent, ...] = ()


def interpret_job_end(
    assigned: JobAssignment,
    report: AgentReport,
    finished: FinishedRun,
    has_fallback: bool,
    now_s: float,
    consecutive_limits: int = 0,
) -> JobEnd:
    """Interpret the end of a job. Only a normal end with a valid answer is DONE.

    `consecutive_limits` is the number of rate limits in a row that this agent had before this run:
    without a known reset time, each one doubles the wait.
    """
    answer = parse_answer(report.answer, assigned.role, truncated=report.truncated)
    if assigned.previous_answer and answer.task_statuses and answer.result_error is None:
        answer = _add_previous_result(answer, assigned)

    end = JobEnd(
        outcome=JobEndKind.DONE,
        answer=answer,
        finished=finished,
        usage=report.usage,
        blockers=(*report.blockers, *answer.blockers, *find_blockers(finished.stderr)),
    )
    end = _classify_end(assigned, report, end)

    if end.outcome is JobEndKind.TRANSIENT and _is_rate_limited(report):
        wait = decide_rate_limit_wait(report.retry_at_s, now_s, consecutive_limits, has_fallback)
        end = _classify_rate_limit(end, wait)
    elif end.outcome is JobEndKind.UNREADABLE and finished.sigterm_sent:
        # It ran out of time, and would do so again in another attempt
        reason = f"{describe_early_stop(finished)}: {end.reason}"
        end = end._replace(outcome=JobEndKind.FAILED, reason=reason)
    elif end.outcome is JobEndKind.BLOCKED and answer.response is not None:
        end = end._replace(cleanup_required=bool(answer.response.cleanup_required))

    return end._replace(reason=_truncate(end.reason), remediation=_truncate(end.remediation))


def _add_previous_result(answer: Answer, assigned: JobAssignment) -> Answer:
    """Add the JSON result of the previous answer, which lacked only the lines of this one."""
    if answer.response is not None:
        return answer

    previous = parse_answer(assigned.previous_answer, assigned.role)
    return replace(answer, result=previous.result, response=previous.response)


def _is_rate_limited(report: AgentReport) -> bool:
    return report.ending in (Ending.RATE_LIMITED, Ending.SILENT)


def _classify_end(assigned: JobAssignment, report: AgentReport, end: JobEnd) -> JobEnd:
    """Classify by explicit statements of the agent first, then by how the process ended.

    A blocker that the agent reports is not retried.
    """
    response = end.answer.response
    if response is not None and not response.success:
        problem = _find_result_problem(assigned, end.answer)
        if problem:
            return end._replace(outcome=JobEndKind.UNREADABLE, reason=problem)

        return end._replace(
            outcome=JobEndKind.BLOCKED,
            reason=response.blocked_reason or response.error or "the agent failed",
            remediation=response.remediation or "",
        )

    if end.blockers:
        reason = "; ".join(dict.fromkeys(end.blockers))
        return end._replace(outcome=JobEndKind.BLOCKED, reason=reason)

    if _is_rate_limited(report) or report.ending is Ending.TRANSIENT:
        return end._replace(
            outcome=JobEndKind.TRANSIENT,
            reason=report.reason,
            remediation=f"wait until the network or the service works again, {THEN_RUN}",
        )

    if report.ending is not Ending.COMPLETED:
        return end._replace(
            outcome=JobEndKind.FAILED,
            reason=report.reason,
            remediation=report.remedy or _suggest_remedy(assigned, report, end.finished),
        )

    problem = end.answer.reason if end.answer.error else ""
    if not problem and assigned.role == "implement":
        problem = _find_result_problem(assigned, end.answer) or _find_task_problem(assigned, end)
    if problem:
        return end._replace(outcome=JobEndKind.UNREADABLE, reason=problem)

    return end


def _find_result_problem(assigned: JobAssignment, answer: Answer) -> str:
    """Return why the answer has no valid JSON result of this job, or ""."""
    if answer.response is None:
        return answer.result_error or "there is no JSON result"

    problems = check_result(answer.response, assigned.job_id, assigned.package_id or None)
    if problems:
        return f"the JSON result is invalid: {', '.join(problems)}"
    return ""


def _find_task_problem(assigned: JobAssignment, end: JobEnd) -> str:
    """Return why the task statuses contradict a success, or "".

    A missing status is requested once, if there is time.
    """
    statuses = end.answer.task_statuses
    failed = [name for name, status in statuses.items() if status is TaskStatus.FAILED]
    if failed:
        names = ", ".join(failed[:MAX_NAMES_SHOWN])
        return f"the result says success, but the status of these tasks is FAILED: {names}"

    missing = [name for name in assigned.tasks if name not in statuses]
    if missing and not assigned.asked_again and not end.finished.sigterm_sent:
        return f"task_status lines are missing for: {', '.join(missing[:MAX_NAMES_SHOWN])}"

    return ""


def _classify_rate_limit(end: JobEnd, wait: RateLimitWait) -> JobEnd:
    """Return the end of a rate-limited job: it waits, or it has failed."""
    until = datetime.fromtimestamp(wait.retry_at_s).astimezone().isoformat(timespec="seconds")
    reason = f"{end.reason}; rate-limited until {until}"

    if wait.should_wait:
        return end._replace(
            outcome=JobEndKind.RATE_LIMITED,
            reason=reason,
            remediation="",
            retry_at_s=wait.retry_at_s,
        )

    return end._replace(
        outcome=JobEndKind.FAILED,
        reason=reason,
        remediation="resolve after that, or configure a fallback agent",
    )


def _truncate(text: str) -> str:
    """Limit the text for the journal and the views; the log of the job has all of it."""
    if len(text) <= MAX_REASON_CHARS:
        return text
    return f"{text[:MAX_REASON_CHARS]} [...]"


def _suggest_remedy(assigned: JobAssignment, report: AgentReport, finished: FinishedRun) -> str:
    show = f"phasegate audit show --job {assigned.job_id}"
    if finished.exceeded_limit:
        return (
            "if the work needs it, raise job_memory_mib, job_tasks or job_disk_mib in [limits] of "
            f"phasegate.toml; see what the agent did: {show}"
        )
    if report.ending is Ending.NOT_RUNNABLE:
        return "see `phasegate agents`, or fix its command in phasegate.toml"
    return f"see what the agent did: {show}"


def block_for_outside_changes(end: JobEnd, changes: Sequence[str]) -> JobEnd:
    """Block a job during which paths or refs outside of its checkout changed."""
    names = escape_unprintable(join_names(changes, MAX_NAMES_SHOWN))
    return end._replace(
        outcome=JobEndKind.BLOCKED,
        reason=f"File scope violation: changed outside the worktree: {names}",
        remediation=(
            "without a sandbox the author of the change is unknown: if it was you, dispatch again; "
            "if not, revert it first (with bubblewrap installed, agents cannot do this)"
        ),
    )
