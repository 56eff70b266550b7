"""What the end of an agent's run means: exit code, answer and blockers together. Files and checks count later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.envelope import Share
from phasegate.agents.plain_program import cut_short
from phasegate.agents.port import NOTHING, AgentReport, Ending, FinishedRun, Usage
from phasegate.config import Agent
from phasegate.record.rows import Event
from phasegate.rules.answer import Answer, blockers_in, parse_answer
from phasegate.rules.budget import Piece
from phasegate.rules.package_run import End
from phasegate.rules.result import Response, check_result
from phasegate.rules.retry import rest_s
from phasegate.rules.scope import Scope
from phasegate.rules.visible_text import visible
from phasegate.rules.work_package import WorkPackage

MOST_NAMED = 20
LONGEST_REASON = 10_000
LONGEST_REST_S = 12 * 3600.0


class Assigned(NamedTuple):
    """Who does a job, and what it is told."""

    job: str
    agent: str
    settings: Agent
    feature: str
    work: WorkPackage | None  # None: a run for the whole feature
    phase: str  # plan, challenge, implement, review or archive
    workflow_phase: str  # the key, such as 06-implementation
    round: int
    rounds: int
    checkout: Path
    document: Path | None  # WPnn.md in the checkout
    instructions: str
    pieces: Sequence[Piece]
    paths: Sequence[str]
    context: tuple[Path, ...] = ()  # the documents that the envelope names
    share: Share | None = None
    documents: tuple[str, ...] = ()  # to be written by a planner: their skeletons are in the prompt
    scope: Scope = NOTHING  # what it may change
    prompt: str = ""  # the whole of it, where it is not put together from the parts above

    @property
    def work_id(self) -> str:
        return self.work.work_package_id if self.work else ""


class Ended(NamedTuple):
    """How a job ended, as we see it, and all that came back."""

    end: End
    reason: str
    remediation: str
    cleanup: bool
    answer: Answer
    finished: FinishedRun
    rows: tuple[Event, ...]  # for the journal, in the same step as the end
    usage: Usage | None = None  # as the agent says
    retry_at_s: float | None = None  # when a limit ends, where that is known


def judged(
    assigned: Assigned,
    report: AgentReport,
    finished: FinishedRun,
    has_a_stand_in: bool,
    now_s: float,
    limits_before: int = 0,
) -> Ended:
    """What the end means: exit code, answer and blockers together. Only then do files and checks count.

    `limits_before`: how often in a row the agent came to a limit before. Where nobody says when it ends, the agent
    rests longer each time, and its fallback steps in at once.
    """
    answer = parse_answer(report.answer, assigned.phase, truncated=report.cut)
    end, reason, remediation = _verdict_on(assigned, report, finished, answer)
    reason, remediation = _bounded(reason), _bounded(remediation)
    again_s = report.retry_at_s
    if report.ending in (Ending.RATE_LIMITED, Ending.SILENT) and end is End.TRANSIENT:
        again_s = again_s if again_s and again_s > now_s else now_s + rest_s(limits_before)
        end, reason, remediation = _at_a_limit(reason, again_s, has_a_stand_in, now_s)
    if end is End.UNREADABLE and finished.told_to_stop:  # asked again, it would use up its time again
        end, reason = End.FAILED, f"{cut_short(finished)}: {reason}"
    cleanup = end is End.BLOCKED and bool(answer.response and answer.response.cleanup_required)
    return Ended(end, reason, remediation, cleanup, answer, finished, (), report.usage, again_s)


def _bounded(text: str) -> str:
    """What is recorded of an agent's words and shown with its package; the whole is in the job's log."""
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]} [...]"


def strayed(ended: Ended, changed: Sequence[str]) -> Ended:
    paths = ", ".join(map(visible, changed[:MOST_NAMED])) + (
        f" and {len(changed) - MOST_NAMED} more" * (len(changed) > MOST_NAMED)
    )
    reason = f"File scope violation: changed outside the worktree: {paths}"
    remedy = (
        "without a sandbox it cannot be told who did it: if it was you, dispatch again; if not, put it back first "
        "(bubblewrap, once installed, keeps agents from it)"
    )
    return ended._replace(end=End.BLOCKED, reason=reason, remediation=remedy)


def _verdict_on(assigned: Assigned, report: AgentReport, finished: FinishedRun, answer: Answer) -> tuple[End, str, str]:
    """What an agent says outright goes before what its last words look like: a blocker is not tried again."""
    response = answer.response
    if response is not None and not response.success:
        if refused := _refusals(assigned, response):
            return End.UNREADABLE, refused, ""
        return End.BLOCKED, response.blocked_reason or response.error or "it failed", response.remediation or ""
    if blockers := dict.fromkeys((*report.blockers, *answer.blockers, *blockers_in(finished.stderr))):
        return End.BLOCKED, "; ".join(blockers), ""
    if report.ending in (Ending.TRANSIENT, Ending.RATE_LIMITED, Ending.SILENT):
        return End.TRANSIENT, report.reason, "wait, then dispatch again"
    if report.ending is not Ending.COMPLETED:
        return End.FAILED, report.reason, report.remedy or _remedy(assigned, report.ending)
    if assigned.phase == "implement":
        return _about_response(assigned, answer)
    return (End.UNREADABLE, answer.reason, "") if answer.error else (End.DONE, "", "")


def _at_a_limit(reason: str, retry_at_s: float, has_a_stand_in: bool, now_s: float) -> tuple[End, str, str]:
    """A limit of the provider is waited for, if it is lifted soon enough or another agent goes on meanwhile."""
    until = datetime.fromtimestamp(retry_at_s).astimezone().isoformat(timespec="seconds")
    if has_a_stand_in or retry_at_s - now_s <= LONGEST_REST_S:
        return End.LIMITED, f"{reason}; it rests until {until}", ""
    return End.FAILED, f"{reason}; not lifted until {until}", "resolve then, or give the agent a fallback"


def _remedy(assigned: Assigned, ending: Ending) -> str:
    if ending is Ending.NOT_RUNNABLE:
        return "see `phasegate agents`, or fix its command in phasegate.toml"
    return f"see what it did: phasegate audit show --job {assigned.job}"


def _about_response(assigned: Assigned, answer: Answer) -> tuple[End, str, str]:
    """An implementer owes the JSON result of this very job."""
    if answer.error:
        return End.UNREADABLE, answer.reason, ""
    if answer.response is None:
        return End.UNREADABLE, answer.result_error or "there is no JSON result", ""
    refused = _refusals(assigned, answer.response)
    return (End.UNREADABLE, refused, "") if refused else (End.DONE, "", "")


def _refusals(assigned: Assigned, response: Response) -> str:
    refused = check_result(response, assigned.job, assigned.work_id or None)
    return f"the JSON result is refused: {', '.join(refused)}" if refused else ""
