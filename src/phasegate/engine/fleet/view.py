"""A fleet's features, from any machine that reaches the bucket: its record copied here, and who is at work on it.

Doors read the copy as they read a repository. Whether a worker is at a step is the server's to say; where it does not
answer, or is not asked, the record tells when it grew last, and no more.
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

from phasegate.core.display.status import ENDED
from phasegate.engine.bucket import LONGEST_END_S, address_of, fleet_copy, fleet_record, open_bucket
from phasegate.engine.fleet.entry import need_temporal
from phasegate.engine.project.ports import stamp
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.views.overview import LAST, SIGNS, FleetSign, FleetSigns
from phasegate.errors import PhasegateError
from phasegate.files.durable_write import replace_file
from phasegate.storage.bucket.copier import trail_name
from phasegate.storage.bucket.trails import bring_trails, live_chunks
from phasegate.storage.trail_reader import Fields, read_entry

LOOK_EVERY_S = 2.0
BY_RECORD = "(some)"  # that it is at work is told by the record alone


def up_to_date(folder: Path, *, trails: bool = False) -> Path:
    """Bring the copy of the fleet's record up to date; its folder, which doors read as they read a repository."""
    project = open_project(folder)
    location = fleet_copy(project)
    with fleet_record(project, LONGEST_END_S) as record:
        record.follow_all()
        if trails:
            bring_trails(open_bucket(project.config.storage, os.environ, LONGEST_END_S), location, record)
        recorded = {row.feature: row.since for row in record.workflows() if row.stage not in ENDED}
        for slug in recorded:
            recorded[slug] = max(recorded[slug], *(one.ts for one in record.events_before(LAST, 1, slug)))
        foreign = record.foreign
    replace_file(location.folder / SIGNS, json.dumps(_signs(project, recorded, foreign)).encode())
    return location.folder


def followed_trail(copy: Path, job: str, wait: Callable[[], bool]) -> Iterator[Fields]:
    """The entries of a job's trail as they come into the bucket, until the job has ended or `wait` says no."""
    project = open_project(copy)
    bucket, chunks, lines = open_bucket(project.config.storage, os.environ, LONGEST_END_S), 0, 0
    with fleet_record(project, LONGEST_END_S) as record:
        while True:
            row = record.job(job)  # asked first: what follows is all of it
            for data in live_chunks(bucket, job, chunks):
                chunks += 1
                for line in data.splitlines():
                    lines += 1
                    yield read_entry(line)
            if row is None or row.ended or not wait():
                break
        whole = bucket.get(trail_name(row.feature, job)) if row and record.seal(job) else None
        yield from map(read_entry, whole.data.splitlines()[lines:] if whole else ())


@contextmanager
def kept_up_to_date(copy: Path) -> Iterator[None]:
    """Bring it up to date again and again while the block runs; what does not answer is asked again."""
    ended = Event()

    def follow() -> None:
        while not ended.wait(LOOK_EVERY_S):
            with suppress(PhasegateError):
                up_to_date(copy, trails=True)

    thread = Thread(target=follow, name="fleet copy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _signs(project: Project, recorded: dict[str, str], foreign: Mapping[str, str]) -> FleetSigns:
    """What is known of the workers. Without the server, a record that has just grown shows that one is at work."""
    moment_s, lost_after_s = time.time(), project.config.fleet.lost_after_s
    try:
        need_temporal()
        from phasegate.engine.fleet.liveness import ask_server

        works, waits = asyncio.run(ask_server(project))
        unknown = ""
    except PhasegateError as error:
        lately = {slug: ts for slug, ts in recorded.items() if ts > stamp(moment_s - lost_after_s)}
        works, waits, unknown = {slug: (BY_RECORD, ts) for slug, ts in lately.items()}, (), error.message
    known = {**dict.fromkeys(foreign, ""), **recorded}
    signs = tuple(
        FleetSign(slug, ts, *works.get(slug, ("", "")), why=foreign.get(slug, "")) for slug, ts in sorted(known.items())
    )
    bucket, server = str(address_of(project.config.storage)), project.config.fleet.server
    return FleetSigns(stamp(moment_s), bucket, server, unknown, signs, waits)
