"""A job: who does it, what it is told, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.envelope import Share
from phasegate.agents.port import NOTHING, AgentReport, Ending, FinishedRun, Usage
from phasegate.agents.stream.plain_output import cut_short
from phasegate.config import Agent
from phasegate.core.answer.parse import Answer, blockers_in, parse_answer
from phasegate.core.audit.trail import Done
from phasegate.core.machine.job_end import Rest, SeenEnd, judge_end
from phasegate.core.machine.package_events import End
from phasegate.core.machine.retry import rest_s
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.prompt.budget import Piece
from phasegate.core.text.visible import visible
from phasegate.storage.rows import Event
from phasegate.workspace.checkout import Assignment

MOST_NAMED = 20
LONGEST_REASON = 10_000


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
    commit: str = ""  # what a critic or reviewer of a phase is shown
    prompt: str = ""  # the whole of it, where it is not put together from the parts above
    saved_tokens: int = 0  # by how much it is shorter than one about the whole work
    asked_again: bool = False  # the answer before this run could not be used
    programs: tuple[Path, ...] = ()  # those of the setup in the checkout: they go on PATH
    own: Assignment | None = None  # the checkout, where what it leaves there is looked at; None: it is thrown away
    before: tuple[tuple[str, Done], ...] = ()  # what we did for it before its start, with the time
    retries: int = 0  # how often it was tried before
    why_again: str = ""  # why the run before this one did not count

    @property
    def work_id(self) -> str:
        return self.work.work_package_id if self.work else ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that are this job's alone. Agents that share a package share its tasks."""
        return self.work.tasks if self.work and self.phase == "implement" and self.share is None else ()


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
    blockers: tuple[str, ...] = ()  # that it named, wherever
    notices: tuple[str, ...] = ()  # what people are to know of it


def judged(
    assigned: Assigned,
    report: AgentReport,
    finished: FinishedRun,
    has_a_stand_in: bool,
    now_s: float,
    limits_before: int = 0,
) -> Ended:
    """What the end of a run means, by the rules.

    `limits_before`: how often in a row the agent came to a limit before. Where nobody says when it ends, the agent
    rests longer each time, and its fallback steps in at once.
    """
    answer = parse_answer(report.answer, assigned.phase, truncated=report.cut)
    is_limited, said_s = report.ending in (Ending.RATE_LIMITED, Ending.SILENT), report.retry_at_s or 0.0
    again_s = said_s if said_s > now_s or not is_limited else now_s + rest_s(limits_before)
    blockers = (*report.blockers, *answer.blockers, *blockers_in(finished.stderr))
    seen = SeenEnd(
        assigned.job,
        assigned.work_id or None,
        assigned.phase,
        report.ending is Ending.COMPLETED,
        is_limited or report.ending is Ending.TRANSIENT,
        report.reason,
        report.remedy or _remedy(assigned, report.ending, finished.over),
        blockers,
        cut_short(finished) if finished.told_to_stop else "",
        again_s if is_limited else 0.0,
        assigned.tasks,
        assigned.asked_again,
    )
    until = datetime.fromtimestamp(again_s).astimezone().isoformat(timespec="seconds")
    end, reason, remediation = judge_end(seen, answer, Rest(now_s, until, has_a_stand_in))
    cleanup = end is End.BLOCKED and bool(answer.response and answer.response.cleanup_required)
    again = again_s or None
    told = _bounded(reason), _bounded(remediation)
    return Ended(end, *told, cleanup, answer, finished, (), report.usage, again, blockers)


def _bounded(text: str) -> str:
    """What is recorded of an agent's words and shown with its package; the whole is in the job's log."""
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]} [...]"


def _remedy(assigned: Assigned, ending: Ending, over: str) -> str:
    if over:
        more = "job_memory_mib, job_tasks or job_disk_mib in [limits] of phasegate.toml"
        return f"if the work needs it, raise {more}; see what it did: phasegate audit show --job {assigned.job}"
    if ending is Ending.NOT_RUNNABLE:
        return "see `phasegate agents`, or fix its command in phasegate.toml"
    return f"see what it did: phasegate audit show --job {assigned.job}"


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
