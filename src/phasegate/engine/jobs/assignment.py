"""A job: who does it, what it is told, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.envelope import AgentShare
from phasegate.agents.port import EMPTY_SCOPE, AgentReport, Ending, FinishedRun, Usage
from phasegate.agents.stream.plain_output import describe_early_stop
from phasegate.config import AgentSettings
from phasegate.core.answer.parse import Answer, find_blockers, parse_answer
from phasegate.core.audit.trail import TrailEvent
from phasegate.core.machine.job_end import ObservedEnd, RateLimitWait, classify_job_end
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.machine.retry import rate_limit_backoff_s
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.prompt.budget import ContextPiece
from phasegate.core.text.visible import escape_unprintable
from phasegate.storage.rows import NewEvent
from phasegate.workspace.checkout import Assignment

MAX_NAMES_SHOWN = 20
MAX_REASON_CHARS = 10_000


class JobAssignment(NamedTuple):
    """Who does a job, and what it is told."""

    job_id: str
    agent: str
    settings: AgentSettings
    feature: str
    # None: a run for the whole feature
    package: WorkPackage | None
    # Plan, challenge, implement, review or archive
    phase: str
    # The key, such as 06-implementation
    workflow_phase: str
    round: int
    max_rounds: int
    checkout: Path
    # WPnn.md in the checkout
    package_document: Path | None
    instructions: str
    pieces: Sequence[ContextPiece]
    paths: Sequence[str]
    # The documents that the envelope names
    context_documents: tuple[Path, ...] = ()
    share: AgentShare | None = None
    # To be written by a planner: their skeletons are in the prompt
    documents_to_write: tuple[str, ...] = ()
    # What it may change
    scope: Scope = EMPTY_SCOPE
    # What a critic or reviewer of a phase is shown
    reviewed_commit: str = ""
    # The whole of it, where it is not put together from the parts above
    prepared_prompt: str = ""
    # By how much it is shorter than one about the whole work
    saved_tokens: int = 0
    # The answer before this run could not be used
    asked_again: bool = False
    # Those of the setup in the checkout: they go on PATH
    setup_programs: tuple[Path, ...] = ()
    own_checkout: Assignment | None = (
        # The checkout, where what it leaves there is looked at; None: it is thrown away
        None
    )
    # What we did for it before its start, with the time
    entries_before_start: tuple[tuple[str, TrailEvent], ...] = ()
    # How often it was tried before
    retries: int = 0
    # Why the run before this one did not count
    retry_reason: str = ""

    @property
    def package_id(self) -> str:
        if self.package:
            return self.package.work_package_id
        return ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that are this job's alone. Agents that share a package share its tasks."""
        if self.package and self.phase == "implement" and self.share is None:
            return self.package.tasks
        return ()


class JobEnd(NamedTuple):
    """How a job ended, as we see it, and all that came back."""

    outcome: JobEndKind
    reason: str
    remediation: str
    cleanup_required: bool
    answer: Answer
    finished: FinishedRun
    # For the journal, in the same step as the end
    rows: tuple[NewEvent, ...]
    # As the agent says
    usage: Usage | None = None
    # When a limit ends, where that is known
    retry_at_s: float | None = None
    # That it named, wherever
    blockers: tuple[str, ...] = ()
    # What people are to know of it
    notices: tuple[str, ...] = ()


def interpret_job_end(
    assigned: JobAssignment,
    report: AgentReport,
    finished: FinishedRun,
    has_fallback: bool,
    now_s: float,
    consecutive_limits: int = 0,
) -> JobEnd:
    """What the end of a run means, by the rules.

    `limits_before`: how often in a row the agent came to a limit before. Where nobody says when it
    ends, the agent rests longer each time, and its fallback steps in at once.
    """
    answer = parse_answer(report.answer, assigned.phase, truncated=report.truncated)
    is_limited = report.ending in (Ending.RATE_LIMITED, Ending.SILENT)
    said_s = report.retry_at_s or 0.0
    if said_s > now_s or not is_limited:
        again_s = said_s
    else:
        again_s = now_s + rate_limit_backoff_s(consecutive_limits)

    blockers = (*report.blockers, *answer.blockers, *find_blockers(finished.stderr))
    seen = ObservedEnd(
        job=assigned.job_id,
        package=assigned.package_id or None,
        role=assigned.phase,
        completed=report.ending is Ending.COMPLETED,
        transient=is_limited or report.ending is Ending.TRANSIENT,
        reason=report.reason,
        remedy=report.remedy or _suggest_remedy(assigned, report.ending, finished.exceeded_limit),
        blockers=blockers,
        stop_reason=describe_early_stop(finished) if finished.sigterm_sent else "",
        limit_reset_at_s=again_s if is_limited else 0.0,
        tasks=assigned.tasks,
        asked_again=assigned.asked_again,
    )

    until = datetime.fromtimestamp(again_s).astimezone().isoformat(timespec="seconds")
    end, reason, remediation = classify_job_end(
        seen, answer, RateLimitWait(now_s, until, has_fallback)
    )
    cleanup = end is JobEndKind.BLOCKED and bool(
        answer.response and answer.response.cleanup_required
    )
    again = again_s or None
    told = _truncate_reason(reason), _truncate_reason(remediation)

    return JobEnd(end, *told, cleanup, answer, finished, (), report.usage, again, blockers)


def _truncate_reason(text: str) -> str:
    """What is recorded of an agent's words and shown with its package.

    The whole is in the job's log.
    """
    if len(text) <= MAX_REASON_CHARS:
        return text
    return f"{text[:MAX_REASON_CHARS]} [...]"


def _suggest_remedy(assigned: JobAssignment, ending: Ending, exceeded_limit: str) -> str:
    if exceeded_limit:
        more = "job_memory_mib, job_tasks or job_disk_mib in [limits] of phasegate.toml"
        return f"if the work needs it, raise {more}; see what it did: phasegate audit show --job {assigned.job_id}"
    if ending is Ending.NOT_RUNNABLE:
        return "see `phasegate agents`, or fix its command in phasegate.toml"
    return f"see what it did: phasegate audit show --job {assigned.job_id}"


def block_for_outside_changes(ended: JobEnd, changed: Sequence[str]) -> JobEnd:
    paths = ", ".join(map(escape_unprintable, changed[:MAX_NAMES_SHOWN])) + (
        f" and {len(changed) - MAX_NAMES_SHOWN} more" * (len(changed) > MAX_NAMES_SHOWN)
    )
    reason = f"File scope violation: changed outside the worktree: {paths}"
    remedy = (
        "without a sandbox it cannot be told who did it: if it was you, dispatch again; if not, put it back first "
        "(bubblewrap, once installed, keeps agents from it)"
    )
    return ended._replace(outcome=JobEndKind.BLOCKED, reason=reason, remediation=remedy)
