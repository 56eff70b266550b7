"""Whether and how a job may start: caps, who stands in, whom its agent may ask. The driver's part of a job."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Cancelled
from typing import NamedTuple, Protocol

from phasegate.agents.spool.server import Answerer
from phasegate.core.workflow.spending import Caps, reached
from phasegate.engine.jobs.assignment import Assigned
from phasegate.engine.project.ports import RecordReader, RunRecord, TrailSink
from phasegate.engine.project.project import Project
from phasegate.files.durable_write import sync_file_system
from phasegate.storage.rows import Job


class Lookout(Protocol):
    """A look at everything outside of a checkout, from before a job."""

    def changes(self) -> list[str]:
        """The paths and refs that changed and are not ours."""


def keep_on_disk(assigned: Assigned) -> None:
    """What a job wrote must not be lost once its end is on record: it is not asked again."""
    sync_file_system(assigned.checkout.parent)


class DriverDesk(NamedTuple):
    """What a driver works with."""

    project: Project
    record: RunRecord
    trails: TrailSink
    answer_for: Callable[[str, str, str], Answerer]  # the requests of a job: its feature, its package or phase, its id
    look_outside: Callable[[str, str], Lookout]
    agent: str | None  # that does it all, whatever the configuration says
    stop: Cancelled
    keep: Callable[[Assigned], None] = keep_on_disk  # what a job has left, before its end is recorded


class CapReached(NamedTuple):
    """A hard cap is reached: nothing more is started before a person has raised it."""

    reason: str
    remedy: str


class Admitted(NamedTuple):
    """What a worker is given besides the order itself."""

    row: Job  # the job as the journal knows it from its start on
    refused: CapReached | None
    has_a_stand_in: bool  # another agent goes on, should this one run into a limit
    limits_before: int  # how often in a row it came to one
    answer: Answerer
    look_outside: Callable[[], Lookout]


def admit(desk: DriverDesk, assigned: Assigned) -> Admitted:
    """What holds for a job that is to start now."""
    project, feature, work = desk.project, assigned.feature, assigned.work_id
    resting, fallback = desk.record.resting(project.clock.time_s()), assigned.settings.fallback
    return Admitted(
        _started_row(project, assigned),
        _refused(project, desk.record, feature),
        fallback is not None and fallback not in resting,
        desk.record.limits_in_a_row(assigned.agent),
        desk.answer_for(feature, work or assigned.workflow_phase, assigned.job),
        lambda: desk.look_outside(feature, work),
    )


def _refused(project: Project, record: RecordReader, feature: str) -> CapReached | None:
    limits = project.config.limits
    caps = Caps(limits.run_cost_usd, limits.total_cost_usd, limits.run_tokens)
    full = reached(caps, record.spent(feature), record.spent())
    if full is None:
        return None
    reason, key = full
    remedy = f"raise {key} in [limits] of phasegate.toml if you want to go on, then resolve"
    return CapReached(f"a limit is reached: {reason}", remedy)


def _started_row(project: Project, assigned: Assigned) -> Job:
    return Job(
        assigned.feature,
        assigned.job,
        assigned.work_id,
        assigned.phase,
        assigned.round,
        assigned.agent,
        project.now(),
        workflow_phase=assigned.workflow_phase,
        model=assigned.settings.model or "",
    )
