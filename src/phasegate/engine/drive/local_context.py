"""Build the driver context of this machine: store, trails, request handler and outside monitor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Cancelled

from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.jobs.outside_monitor import CheckoutSurroundingsMonitor
from phasegate.engine.jobs.requests import make_request_handler
from phasegate.engine.project.ports import TrailSink
from phasegate.engine.project.project import Project
from phasegate.storage.journal_store import Store
from phasegate.storage.record import WritableStore
from phasegate.storage.trails import TrailWriter


@contextmanager
def open_local_context(
    project: Project, store: Store, agent: str | None = None, stop: Cancelled | None = None
) -> Iterator[DriverContext]:
    """Open the trails and yield a driver context for this machine."""
    with (
        project.check_record.attach(store),
        TrailWriter.create(
            project.location, store.heads.path.parent, project.clock.new_id()
        ) as trails,
    ):
        yield make_driver_context(project, store, trails, agent, stop)


def make_driver_context(
    project: Project,
    record: WritableStore,
    trails: TrailSink,
    agent: str | None = None,
    stop: Cancelled | None = None,
) -> DriverContext:
    """Build a driver context for this machine with the given record and trails."""
    return DriverContext(
        project=project,
        record=record,
        trails=trails,
        make_request_handler=lambda feature, work, job: make_request_handler(
            project, record, feature, work, job
        ),
        start_outside_monitor=lambda feature, work: CheckoutSurroundingsMonitor(
            project, record, feature, work
        ),
        agent_override=agent,
        stop=stop or project.stop,
    )
