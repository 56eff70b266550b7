"""Ends of runs, as the engine judges them."""

from __future__ import annotations

import json
from pathlib import Path

from phasegate.agents.port import AgentReport, FinishedRun
from phasegate.config.settings import AgentSettings, HarnessKind
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd, interpret_job_end
from support.packages import minimal
from support.tasks import JOB_ID


def result(*, success: bool, job: str = JOB_ID) -> str:
    """An answer with the JSON result of a job on WP01."""
    why = {} if success else {"blocked_reason": "no access", "cleanup_required": False}
    status = "completed" if success else "blocked"
    return (
        json.dumps({"job_id": job, "wp_id": "WP01", "success": success, "status": status, **why})
        + "\n"
    )


def implementer() -> JobAssignment:
    """The job that implements WP01."""
    return JobAssignment(
        job_id=JOB_ID,
        agent="liar",
        settings=AgentSettings(harness=HarnessKind("scripted")),
        feature="001-user-login",
        package=minimal(),
        role="implement",
        phase="06-implementation",
        round=1,
        max_rounds=5,
        checkout=Path(),
        package_document=None,
        instructions="",
        pieces=(),
        paths=(),
    )


def judged_implementer(report: AgentReport, finished: FinishedRun) -> JobEnd:
    """Interpret the end of a run that implemented WP01."""
    return interpret_job_end(implementer(), report, finished, has_fallback=False, now_s=0.0)
