"""Admit a job: check spending caps, the fallback agent, and set up its request handler.

The caller is a driver, which has access to the record.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Cancelled
from typing import NamedTuple, Protocol

from phasegate.agents.spool.server import SpoolRequestHandler
from phasegate.core.workflow.spending import SpendingCaps, find_reached_cap
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.project.agents import find_startable_agents, walk_fallbacks
from phasegate.engine.project.ports import RecordReader, RunRecord, TrailSink
from phasegate.engine.project.project import Project
from phasegate.files.durable_write import sync_file_system
from phasegate.storage.rows import JobRow


class OutsideMonitor(Protocol):
    """Detects changes outside of a checkout since a job started."""

    def list_changes(self) -> list[str]:
        """Return the paths and refs that changed, except those that Phasegate itself changed."""


def sync_checkout(assigned: JobAssignment) -> None:
    """Write a job's files to disk before its end is recorded: after that it is not run again."""
    sync_file_system(assigned.checkout.parent)


class DriverContext(NamedTuple):
    """The ports and options of a driver."""

    project: Project
    record: RunRecord
    trails: TrailSink
    # Arguments: feature, package or phase, job id
    make_request_handler: Callable[[str, str, str], SpoolRequestHandler]
    start_outside_monitor: Callable[[str, str], OutsideMonitor]
    # The agent for all roles, instead of the configured ones
    agent_override: str | None
    stop: Cancelled
    # Makes the files of a job durable before its end is recorded
    sync_work: Callable[[JobAssignment], None] = sync_checkout
    # Returns True if running agents may end, but no other one may start
    is_draining: Callable[[], bool] = lambda: False


class CapReached(NamedTuple):
    """A spending cap that is reached. No job starts until the user raises it."""

    reason: str
    remedy: str


class Admission(NamedTuple):
    """The data that a job needs in addition to its assignment."""

    # The row that the journal has from the start of the job
    started_row: JobRow
    cap_reached: CapReached | None
    # True if a fallback agent is available when this one is rate-limited
    has_fallback: bool
    # Number of consecutive rate limits of this agent
    consecutive_limits: int
    handle_request: SpoolRequestHandler
    start_outside_monitor: Callable[[], OutsideMonitor]


def admit_job(context: DriverContext, assigned: JobAssignment) -> Admission:
    """Check the caps and build the admission of a job that starts now."""
    project = context.project
    feature = assigned.feature
    work = assigned.package_id
    rate_limited = context.record.rate_limited_agents(project.clock.time_s())
    fallbacks = walk_fallbacks(find_startable_agents(project), assigned.settings.fallback)
    # A chain may lead back to the agent itself
    unavailable = {assigned.agent, *rate_limited}

    return Admission(
        started_row=_make_started_row(project, assigned),
        cap_reached=_check_caps(project, context.record, feature),
        has_fallback=any(name not in unavailable for name in fallbacks),
        consecutive_limits=context.record.count_consecutive_limits(assigned.agent),
        handle_request=context.make_request_handler(
            feature, work or assigned.phase, assigned.job_id
        ),
        start_outside_monitor=lambda: context.start_outside_monitor(feature, work),
    )


def _check_caps(project: Project, record: RecordReader, feature: str) -> CapReached | None:
    """Return the spending limit that is reached, or None if there is none."""
    limits = project.config.limits
    caps = SpendingCaps(limits.run_cost_usd, limits.total_cost_usd, limits.run_tokens)
    reached = find_reached_cap(caps, record.total_spent(feature), record.total_spent())
    if reached is None:
        return None

    reason, key = reached
    return CapReached(
        f"a limit is reached: {reason}",
        f"to continue, raise {key} in [limits] of phasegate.toml, then resolve",
    )


def _make_started_row(project: Project, assigned: JobAssignment) -> JobRow:
    """Create the row of a job that starts now."""
    return JobRow(
        feature=assigned.feature,
        id=assigned.job_id,
        wp=assigned.package_id,
        phase=assigned.role,
        round=assigned.round,
        agent=assigned.agent,
        started=project.now(),
        workflow_phase=assigned.phase,
        model=assigned.settings.model or "",
    )
