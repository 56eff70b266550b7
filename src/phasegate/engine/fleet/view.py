"""A fleet's features, from any machine that reaches the bucket.

Its record copied here, and who is at work on it.

Doors read the copy as they read a repository. Whether a worker is at a step is the server's to say;
where it does not answer, or is not asked, the record tells when it grew last, and no more.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.engine.bucket import (
    FINAL_COPY_TIMEOUT_S,
    locate_fleet_copy,
    make_bucket_address,
    open_bucket,
    open_fleet_record,
)
from phasegate.engine.fleet.entry import require_temporal
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
# That it is at work is told by the record alone
UNKNOWN_WORKER = "(some)"


def update_copy(folder: Path, *, trails: bool = False) -> Path:
    """Bring the copy of the fleet's record up to date.

    Its folder, which doors read as they read a repository.
    """
    project = open_project(folder)
    location = locate_fleet_copy(project)
    with open_fleet_record(project, FINAL_COPY_TIMEOUT_S) as record:
        record.sync_all_features()
        if trails:
            download_trails(
                open_bucket(project.config.storage, os.environ, FINAL_COPY_TIMEOUT_S),
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

    replace_file(
        location.data_folder / FLEET_STATUS_FILE,
        json.dumps(_build_fleet_status(project, recorded, foreign)).encode(),
    )
    return location.data_folder


def follow_trail(copy: Path, job: str, wait: Callable[[], bool]) -> Iterator[EntryFields]:
    """The entries of a job's trail as they come into the bucket, until the job has ended or `wait`
    says no.
    """
    project = open_project(copy)
    bucket = open_bucket(project.config.storage, os.environ, FINAL_COPY_TIMEOUT_S)
    chunks = 0
    lines = 0
    with open_fleet_record(project, FINAL_COPY_TIMEOUT_S) as record:
        while True:
            # Asked first: what follows is all of it
            row = record.find_job(job)
            for data in read_live_chunks(bucket, job, chunks):
                chunks += 1
                for line in data.splitlines():
                    lines += 1
                    yield parse_entry(line)

            if row is None or row.ended or not wait():
                break

        if row and record.find_seal(job):
            whole = bucket.get(trail_object_path(row.feature, job))
        else:
            whole = None

        yield from map(parse_entry, whole.data.splitlines()[lines:] if whole else ())


@contextmanager
def keep_copy_updated(copy: Path) -> Iterator[None]:
    """Bring it up to date again and again while the block runs.

    What does not answer is asked again.
    """
    ended = Event()

    def follow() -> None:
        while not ended.wait(POLL_INTERVAL_S):
            with suppress(PhasegateError):
                update_copy(copy, trails=True)

    thread = Thread(target=follow, name="fleet copy", daemon=True)
    thread.start()

    try:
        yield
    finally:
        ended.set()
        thread.join()


def _build_fleet_status(
    project: Project, recorded: dict[str, str], foreign: Mapping[str, str]
) -> FleetStatus:
    """What is known of the workers.

    Without the server, a record that has just grown shows that one is at work.
    """
    moment_s = time.time()
    lost_after_s = project.config.fleet.heartbeat_timeout_s

    try:
        require_temporal()
        from phasegate.engine.fleet.liveness import query_fleet_state

        works, waits = asyncio.run(query_fleet_state(project))
        unknown = ""
    except PhasegateError as error:
        lately = {
            slug: ts
            for slug, ts in recorded.items()
            if ts > format_timestamp(moment_s - lost_after_s)
        }
        works = {slug: (UNKNOWN_WORKER, ts) for slug, ts in lately.items()}
        waits = ()
        unknown = error.message

    known = {**dict.fromkeys(foreign, ""), **recorded}
    signs = tuple(
        FleetFeatureStatus(slug, ts, *works.get(slug, ("", "")), why=foreign.get(slug, ""))
        for slug, ts in sorted(known.items())
    )
    bucket = str(make_bucket_address(project.config.storage))
    server = project.config.fleet.address

    return FleetStatus(
        at=format_timestamp(moment_s),
        bucket=bucket,
        server=server,
        unknown=unknown,
        features=signs,
        unserved=waits,
    )
