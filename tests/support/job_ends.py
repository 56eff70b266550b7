"""Ends of runs, as the engine judges them."""

from __future__ import annotations

import json
from pathlib import Path

from phasegate.agents.port import AgentReport, FinishedRun
from phasegate.config.settings import Agent, HarnessKind
from phasegate.engine.jobs.assignment import Assigned, Ended, judged
from support.packages import minimal
from support.tasks import JOB_ID


def result(*, success: bool, job: str = JOB_ID) -> str:
    """An answer with the JSON result of a job on WP01."""
    why = {} if success else {"blocked_reason": "no access", "cleanup_required": False}
    status = "completed" if success else "blocked"
    return json.dumps({"job_id": job, "wp_id": "WP01", "success": success, "status": status, **why}) + "\n"


def judged_implementer(report: AgentReport, finished: FinishedRun) -> Ended:
    """What the engine makes of a run that implemented WP01."""
    assigned = Assigned(
        job=JOB_ID,
        agent="liar",
        settings=Agent(harness=HarnessKind("scripted")),
        feature="001-user-login",
        work=minimal(),
        phase="implement",
        workflow_phase="06-implementation",
        round=1,
        rounds=5,
        checkout=Path(),
        document=None,
        instructions="",
        pieces=(),
        paths=(),
    )
    return judged(assigned, report, finished, has_a_stand_in=False, now_s=0.0)
