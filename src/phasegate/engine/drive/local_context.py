"""The desk of a driver on this machine: the store, its trails, and what an agent is told of the record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Cancelled

from phasegate.engine.jobs.admission import DriverDesk
from phasegate.engine.jobs.outside_watch import Watch
from phasegate.engine.jobs.requests import answerer
from phasegate.engine.project.ports import TrailSink
from phasegate.engine.project.project import Project
from phasegate.storage.record import WritableRecord
from phasegate.storage.store import Store
from phasegate.storage.trails import Trails


@contextmanager
def local_desk(
    project: Project, store: Store, agent: str | None = None, stop: Cancelled | None = None
) -> Iterator[DriverDesk]:
    """What a driver works with here."""
    with Trails.create(project.location, store.heads.path.parent, project.clock.new_id()) as trails:
        yield desk_with(project, store, trails, agent, stop)


def desk_with(
    project: Project, record: WritableRecord, trails: TrailSink, agent: str | None = None, stop: Cancelled | None = None
) -> DriverDesk:
    """A desk on this machine, with whichever record and trails."""
    return DriverDesk(
        project,
        record,
        trails,
        lambda feature, work, job: answerer(project, record, feature, work, job),
        lambda feature, work: Watch(project, record, feature, work),
        agent,
        stop or project.stop,
    )
