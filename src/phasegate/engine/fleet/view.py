"""Copy a fleet's record to this machine, with the state of its workers.

Interfaces read the copy like a repository. The Temporal server knows whether a worker runs a step.
If the server does not respond, the record only shows when the last event was written.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from phasegate.background import repeat_in_background
from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.engine.bucket import (
    FINAL_COPY_TIMEOUT_S,
    locate_fleet_copy,
    make_fleet_address,
    open_fleet_bucket,
    open_fleet_record,
)
from phasegate.engine.fleet.entry import require_temporal
from phasegate.engine.fleet.pause import read_pause
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.views.overview import (
    FLEET_STATUS_FILE,
    MAX_POSITION,
    FleetFeatureStatus,
    FleetStatus,
)
from phasegate.errors import PhasegateError
from phasegate.files.durable_write import replace_file
from phasegate.storage.bucket.copier import trail_object_path
from phasegate.storage.bucket.trails import download_trails, read_live_chunks
from phasegate.storage.trail_reader import EntryFields, parse_entry

POLL_INTERVAL_S = 2.0
# Name of a worker that only the record shows to be running
UNKNOWN_WORKER = "(some)"


def update_copy(folder: Path, *, trails: bool = False) -> Path:
    """Update the copy of the fleet's record. Return its folder, which is read like a repository."""
    project = open_project(folder)
    location = locate_fleet_copy(project)
    with open_fleet_record(project, FINAL_COPY_TIMEOUT_S) as record:
        record.sync_open_features()
        if trails:
            download_trails(
                open_fleet_bucket(project, FINAL_COPY_TIMEOUT_S),
                location,
                record,
            )

        recorded = {
            row.feature: row.since
            for row in record.workflows()
            if row.stage not in ENDED_STAGE_NAMES
        }
        for slug in recorded:
            recorded[slug] = max(
                recorded[slug], *(one.ts for one in record.events_before(MAX_POSITION, 1, slug))
            )

        foreign = record.foreign_histories

    status = _build_fleet_status(project, recorded, foreign)
    paused = read_pause(open_fleet_bucket(project, FINAL_COPY_TIMEOUT_S))
    replace_file(
        location.data_folder / FLEET_STATUS_FILE,
        json.dumps(status._replace(paused=paused)).encode(),
    )
    return location.data_folder


def follow_trail(copy: Path, job: str, wait: Callable[[], bool]) -> Iterator[EntryFields]:
    """Yield the entries of a job's trail as they reach the bucket.

    It ends when the job has ended or `wait` returns False.
    """
    project = open_project(copy)
    bucket = open_fleet_bucket(project, FINAL_COPY_TIMEOUT_S)
    chunks = 0
    lines = 0
    with open_fleet_record(project, FINAL_COPY_TIMEOUT_S) as record:
        while True:
            # Read the row before the chunks: if it has ended, the chunks are complete.
            row = record.find_job(job)
            for data in read_live_chunks(bucket, job, chunks):
                chunks += 1
                for line in data.splitlines():
                    lines += 1
                    yield parse_entry(line)

            if row is None or row.ended or not wait():
                break

        is_sealed = row and record.find_seal(job)
        trail = bucket.get(trail_object_path(row.feature, job)) if row and is_sealed else None
        if trail:
            yield from map(parse_entry, trail.data.splitlines()[lines:])


@contextmanager
def keep_copy_updated(copy: Path) -> Iterator[None]:
    """Update the copy in a loop while the block runs; errors are retried."""

    def update() -> None:
        with suppress(PhasegateError):
            update_copy(copy, trails=True)

    with repeat_in_background(update, POLL_INTERVAL_S, "fleet copy"):
        yield


def _build_fleet_status(
    project: Project, recorded: dict[str, str], foreign: Mapping[str, str]
) -> FleetStatus:
    """Return the known state of the workers.

    If the server does not respond, a recent event shows that a worker is running.
    """
    now_s = time.time()

    try:
        require_temporal()
        from phasegate.engine.fleet.server_query import query_fleet_state

        state = asyncio.run(query_fleet_state(project))
        workers = state.running
        unserved = state.unserved
        connected = state.connected
        unknown = ""
    except PhasegateError as error:
        oldest = format_timestamp(now_s - project.config.fleet.heartbeat_timeout_s)
        workers = {slug: (UNKNOWN_WORKER, ts) for slug, ts in recorded.items() if ts > oldest}
        unserved = ()
        connected = ()
        unknown = error.message

    times = {**dict.fromkeys(foreign, ""), **recorded}
    features = tuple(
        FleetFeatureStatus(slug, ts, *workers.get(slug, ("", "")), why=foreign.get(slug, ""))
        for slug, ts in sorted(times.items())
    )

    return FleetStatus(
        at=format_timestamp(now_s),
        bucket=str(make_fleet_address(project)),
        server=project.config.fleet.address,
        unknown=unknown,
        features=features,
        unserved=unserved,
        workers=connected,
    )
