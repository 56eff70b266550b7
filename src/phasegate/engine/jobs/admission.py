"""Whether and how a job may start: caps, who stands in, whom its agent may ask.

The driver's part of a job.
"""

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
    # The requests of a job: its feature, its package or phase, its id
    make_request_handler: Callable[[str, str, str], SpoolRequestHandler]
    start_outside_monitor: Callable[[str, str], OutsideMonitor]
    # That does it all, whatever the configuration says
    agent_override: str | None
    stop: Cancelled
    # What a job has left, before its end is recorded
    sync_work: Callable[[JobAssignment], None] = sync_checkout


class CapReached(NamedTuple):
    """A hard cap is reached: nothing more is started before a person has raised it."""

    reason: str
    remedy: str


class Admission(NamedTuple):
    """What a worker is given besides the order itself."""

    # The job as the journal knows it from its start on
    started_row: JobRow
    cap_reached: CapReached | None
    # Another agent goes on, should this one run into a limit
    has_fallback: bool
    # How often in a row it came to one
    consecutive_limits: int
    handle_request: SpoolRequestHandler
    start_outside_monitor: Callable[[], OutsideMonitor]


def admit_job(context: DriverContext, assigned: JobAssignment) -> Admission:
    """What holds for a job that is to start now."""
    project = context.project
    feature = assigned.feature
    work = assigned.package_id
    resting = context.record.rate_limited_agents(project.clock.time_s())
    fallback = assigned.settings.fallback

    return Admission(
        started_row=_make_started_row(project, assigned),
        cap_reached=_check_caps(project, context.record, feature),
        has_fallback=fallback is not None and fallback not in resting,
        consecutive_limits=context.record.count_consecutive_limits(assigned.agent),
        handle_request=context.make_request_handler(
            feature, work or assigned.workflow_phase, assigned.job_id
        ),
        start_outside_monitor=lambda: context.start_outside_monitor(feature, work),
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
        feature=assigned.feature,
        id=assigned.job_id,
        wp=assigned.package_id,
        phase=assigned.phase,
        round=assigned.round,
        agent=assigned.agent,
        started=project.now(),
        workflow_phase=assigned.workflow_phase,
        model=assigned.settings.model or "",
    )
