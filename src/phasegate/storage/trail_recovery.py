"""Close the trails that a dead process left open in its log.

A last entry in each trail says that its process died.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.core.audit.trail import scan_trail, trail_origin_hash
from phasegate.errors import DivergedHistory
from phasegate.storage.journal_store import Store
from phasegate.storage.location import Location
from phasegate.storage.row_events import trail_sealed_event
from phasegate.storage.rows import NewEvent, TrailSeal
from phasegate.storage.trail_files import TrailKey, list_trail_files, read_trail, trail_path
from phasegate.storage.trail_log import (
    OpenTrail,
    TrailLog,
    list_log_files,
    log_file_name,
    read_open_trails,
)
from phasegate.storage.trails import TrailWriter, recovery_entry

TrailWriterFactory = Callable[[TrailLog, dict[str, OpenTrail]], TrailWriter]


class SealStore(Protocol):
    """The part of a journal that recovery needs.

    The local store and the journal in a bucket both implement it.
    """

    def seals(self) -> Iterable[TrailSeal]: ...

    def last_seq(self, feature: str) -> int: ...

    def append_unconditionally(self, feature: str, ts: str, events: Sequence[NewEvent]) -> int: ...


class TrailRecovery(NamedTuple):
    """The result of recovering one trail.

    If there is a problem, the trail was not changed; `audit verify` shows details.
    """

    feature: str
    job: str
    entries: int = 0
    problem: str = ""


def recover_trails(
    store: Store, location: Location, writer_id: str, ts: str
) -> list[TrailRecovery]:
    """Close and seal every trail whose process died. Trails of live processes are not changed."""
    outside = store.heads.folder
    strays = set(list_trail_files(location)) - {
        (trail.feature, trail.job)
        for path in list_log_files(outside)
        for trail in read_open_trails(path)
    }
    found = close_orphaned_trails(store, outside, partial(TrailWriter, location), ts)
    strays -= {(seal.feature, seal.job) for seal in store.seals()}

    return found + [_seal_stray_file(store, location, key, writer_id, ts) for key in sorted(strays)]


def close_orphaned_trails(
    store: SealStore,
    log_folder: Path,
    make_writer: TrailWriterFactory,
    ts: str,
    active_writers: Collection[str] = (),
) -> list[TrailRecovery]:
    """Close and seal every trail in the logs of dead processes.

    `active_writers` are writers of this process, whose logs are skipped.
    """
    known = {log_file_name(writer) for writer in active_writers}
    paths = (path for path in list_log_files(log_folder) if path.name not in known)
    left = (adopted for path in paths if (adopted := TrailLog.adopt(path)) is not None)

    return [
        one
        for log, trails in left
        for one in _close_log_trails(store, make_writer(log, trails), trails, ts)
    ]


def _close_log_trails(
    store: SealStore, writer: TrailWriter, open_trails: dict[str, OpenTrail], ts: str
) -> list[TrailRecovery]:
    """Close the trails that a dead process left open in its log."""
    seals = {seal.job: seal for seal in store.seals()}
    found = []
    with writer as trails:
        for job, trail in list(open_trails.items()):
            kept = trails.read_remote_trail(trail.feature, job)
            is_sealed = job in seals and seals[job].hash == trail.last_hash

            if is_sealed or (kept != trail.content and kept.startswith(trail.content)):
                # The process died before forgetting the trail, or another machine continued it
                trails.forget(job)
            elif not trail.content.startswith(kept):
                found.append(
                    TrailRecovery(
                        trail.feature,
                        job,
                        len(trail.lines),
                        "another machine continued the trail without its last lines",
                    )
                )
            else:
                found.append(_close_and_seal(store, trails, trail, ts))

    return found


def _close_and_seal(
    store: SealStore, trails: TrailWriter, trail: OpenTrail, ts: str, witnessed: bool = True
) -> TrailRecovery:
    """Append a recovery entry to a trail, and seal it in the journal."""
    feature = trail.feature
    job = trail.job
    entries = len(trail.lines)
    if trails.find_foreign_file(job):
        return TrailRecovery(feature, job, entries, "its file was not written by Phasegate")

    try:
        # Check first that the seal can be recorded
        store.last_seq(feature)
    except DivergedHistory as error:
        return TrailRecovery(feature, job, entries, error.message)

    trails.append_entry(job, ts, recovery_entry(entries))
    store.append_unconditionally(
        feature, ts, [trail_sealed_event(trails.close(job)._replace(witnessed=witnessed))]
    )
    trails.forget(job)

    return TrailRecovery(feature, job, entries)


def _seal_stray_file(
    store: Store, location: Location, key: TrailKey, writer_id: str, ts: str
) -> TrailRecovery:
    """Seal a trail file that has no seal and is in no log, because its log was lost.

    The seal marks the trail as unwitnessed.
    """
    row = store.find_job(key[1])
    if row is None or row.feature != key[0]:
        return TrailRecovery(*key, problem="no such job was recorded")

    lines, size, digest, torn_bytes, broken = scan_trail(
        read_trail(trail_path(location, *key)), trail_origin_hash(*key)
    )
    if broken or torn_bytes:
        return TrailRecovery(
            *key, problem=f"line {lines + 1} {broken.why if broken else 'is incomplete'}"
        )

    with TrailWriter.create(location, store.heads.folder, writer_id) as trails:
        trail = trails.reopen(TrailSeal(*key, lines, size, digest))
        return _close_and_seal(store, trails, trail, ts, witnessed=False)
