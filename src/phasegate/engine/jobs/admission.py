"""Whether and how a job may start: caps, who stands in, whom its agent may ask. The driver's part of a job."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Cancelled
from typing import NamedTuple, Protocol

from phasegate.agents.spool.server import SpoolRequestHandler
from phasegate.core.workflow.spending import SpendingCaps, find_reached_cap
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.project.ports import RecordReader, RunRecord, TrailSink
from phasegate.engine.project.project import Project
from phasegate.files.durable_write import sync_file_system
from phasegate.storage.rows import JobRow


class OutsideMonitor(Protocol):
    """A look at everything outside of a checkout, from before a job."""

    def list_changes(self) -> list[str]:
        """The paths and refs that changed and are not ours."""


def sync_checkout(assigned: JobAssignment) -> None:
    """What a job wrote must not be lost once its end is on record: it is not asked again."""
    sync_file_system(assigned.checkout.parent)


class DriverContext(NamedTuple):
    """What a driver works with."""

    project: Project
    record: RunRecord
    trails: TrailSink
    make_request_handler: Callable[
        [str, str, str], SpoolRequestHandler
    ]  # the requests of a job: its feature, its package or phase, its id
    start_outside_monitor: Callable[[str, str], OutsideMonitor]
    agent_override: str | None  # that does it all, whatever the configuration says
    stop: Cancelled
    sync_work: Callable[[JobAssignment], None] = sync_checkout  # what a job has left, before its end is recorded


class CapReached(NamedTuple):
    """A hard cap is reached: nothing more is started before a person has raised it."""

    reason: str
    remedy: str


class Admission(NamedTuple):
    """What a worker is given besides the order itself."""

    started_row: JobRow  # the job as the journal knows it from its start on
    cap_reached: CapReached | None
    has_fallback: bool  # another agent goes on, should this one run into a limit
    consecutive_limits: int  # how often in a row it came to one
    handle_request: SpoolRequestHandler
    start_outside_monitor: Callable[[], OutsideMonitor]


def admit_job(context: DriverContext, assigned: JobAssignment) -> Admission:
    """What holds for a job that is to start now."""
    project, feature, work = context.project, assigned.feature, assigned.package_id
    resting, fallback = context.record.rate_limited_agents(project.clock.time_s()), assigned.settings.fallback
    return Admission(
        _make_started_row(project, assigned),
        _check_caps(project, context.record, feature),
        fallback is not None and fallback not in resting,
        context.record.count_consecutive_limits(assigned.agent),
        context.make_request_handler(feature, work or assigned.workflow_phase, assigned.job_id),
        lambda: context.start_outside_monitor(feature, work),
    )


def _check_caps(project: Project, record: RecordReader, feature: str) -> CapReached | None:
    limits = project.config.limits
    caps = SpendingCaps(limits.run_cost_usd, limits.total_cost_usd, limits.run_tokens)
    full = find_reached_cap(caps, record.total_spent(feature), record.total_spent())
    if full is None:
        return None
    reason, key = full
    remedy = f"raise {key} in [limits] of phasegate.toml if you want to go on, then resolve"
    return CapReached(f"a limit is reached: {reason}", remedy)


def _make_started_row(project: Project, assigned: JobAssignment) -> JobRow:
    return JobRow(
        assigned.feature,
        assigned.job_id,
        assigned.package_id,
        assigned.phase,
        assigned.round,
        assigned.agent,
        project.now(),
        workflow_phase=assigned.workflow_phase,
        model=assigned.settings.model or "",
    )
