"""After a crash: close the trails that a dead process left open in its log, and say so in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.core.audit.trail import origin, read_lines
from phasegate.errors import ForeignHistory
from phasegate.storage.location import Location
from phasegate.storage.row_events import trail_sealed
from phasegate.storage.rows import Event, Seal
from phasegate.storage.store import Store
from phasegate.storage.trail_files import Key, read_trail, trail_files, trail_path
from phasegate.storage.trail_log import OpenTrail, TrailLog, log_files, log_name, read_log
from phasegate.storage.trails import Trails, recovered

MakesTrails = Callable[[TrailLog, dict[str, OpenTrail]], Trails]


class SealRecord(Protocol):
    """The part of a journal that recovery needs: the local store and the one in a bucket both have it."""

    def seals(self) -> Iterable[Seal]: ...

    def seq(self, feature: str) -> int: ...

    def append_now(self, feature: str, ts: str, events: Sequence[Event]) -> int: ...


class Recovery(NamedTuple):
    """What was done about one trail. With a problem, nothing was: `audit verify` says more."""

    feature: str
    job: str
    entries: int = 0
    problem: str = ""


def recover(store: Store, location: Location, fresh_id: str, ts: str) -> list[Recovery]:
    """Close and seal every trail whose process died. Trails of living processes are left alone."""
    outside = store.heads.folder
    strays = set(trail_files(location)) - {
        (trail.feature, trail.job) for path in log_files(outside) for trail in read_log(path)
    }
    found = close_left(store, outside, partial(Trails, location), ts)
    strays -= {(seal.feature, seal.job) for seal in store.seals()}
    return found + [_close_stray(store, location, key, fresh_id, ts) for key in sorted(strays)]


def close_left(
    store: SealRecord, outside: Path, writing: MakesTrails, ts: str, living: Collection[str] = ()
) -> list[Recovery]:
    """Close and seal every trail in the logs of dead processes. `living`: writers of this one, left alone unasked."""
    known = {log_name(writer) for writer in living}
    paths = (path for path in log_files(outside) if path.name not in known)
    left = (adopted for path in paths if (adopted := TrailLog.adopt(path)) is not None)
    return [one for log, trails in left for one in _close_all(store, writing(log, trails), trails, ts)]


def _close_all(store: SealRecord, writing: Trails, open_trails: dict[str, OpenTrail], ts: str) -> list[Recovery]:
    seals = {seal.job: seal for seal in store.seals()}
    found = []
    with writing as trails:
        for job, trail in list(open_trails.items()):
            kept = trails.kept_elsewhere(trail.feature, job)
            is_sealed = job in seals and seals[job].hash == trail.hash
            if is_sealed or (kept != trail.content and kept.startswith(trail.content)):
                trails.forget(job)  # it died between the seal and forgetting; or another machine went on with it
            elif not trail.content.startswith(kept):
                found.append(Recovery(trail.feature, job, len(trail.lines), "another machine went on without its end"))
            else:
                found.append(_close(store, trails, trail, ts))
    return found


def _close(store: SealRecord, trails: Trails, trail: OpenTrail, ts: str, witnessed: bool = True) -> Recovery:
    feature, job, entries = trail.feature, trail.job, len(trail.lines)
    if trails.stranger(job):
        return Recovery(feature, job, entries, "a file that was not written here stands in its place")
    try:
        store.seq(feature)  # nothing is begun where its end cannot be recorded
    except ForeignHistory as error:
        return Recovery(feature, job, entries, error.message)
    trails.write(job, ts, recovered(entries))
    store.append_now(feature, ts, [trail_sealed(trails.close(job)._replace(witnessed=witnessed))])
    trails.forget(job)
    return Recovery(feature, job, entries)


def _close_stray(store: Store, location: Location, key: Key, fresh_id: str, ts: str) -> Recovery:
    """A file without a seal that no log holds: the log was lost. What is there is sealed as unwitnessed."""
    row = store.job(key[1])
    if row is None or row.feature != key[0]:
        return Recovery(*key, problem="no such job was recorded")
    lines, size, digest, torn_bytes, broken = read_lines(read_trail(trail_path(location, *key)), origin(*key))
    if broken or torn_bytes:
        return Recovery(*key, problem=f"line {lines + 1} {broken.why if broken else 'is torn'}")
    with Trails.create(location, store.heads.folder, fresh_id) as trails:
        trail = trails.open_again(Seal(*key, lines, size, digest))
        return _close(store, trails, trail, ts, witnessed=False)
