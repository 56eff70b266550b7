"""After a crash: finish the trails that a dead process left behind (I05), from the log outside, and say so in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from phasegate.record.durable import write_all
from phasegate.record.location import Location
from phasegate.record.row_events import trail_sealed
from phasegate.record.rows import Seal
from phasegate.record.spool import Base, Comparison, Spool, Spooled, compare, parse
from phasegate.record.store import Store
from phasegate.record.trails import Trails, trail_path
from phasegate.rules.trail import Action, Done, Source, Value, origin, read_lines

ACTOR = "phasegate"
Key = tuple[str, str]


class Recovery(NamedTuple):
    """What was done about one trail. With a problem, nothing was: `audit verify` says more."""

    feature: str
    job: str
    torn_bytes: int = 0
    restored_entries: int = 0
    problem: str = ""


def recover(store: Store, location: Location, fresh_id: str, ts: str) -> list[Recovery]:
    """Finish and seal every trail whose process died. Trails of living processes are left alone."""
    strays = set(trail_files(location))
    found: list[Recovery] = []
    for path in spool_files(store.heads.folder):
        strays -= {key_of(spooled) for spooled in read_spool(path)}
        spool = Spool.adopt(path)
        if spool is not None:
            found += _finish(store, location, spool, ts)
    strays -= {(seal.feature, seal.job) for seal in store.seals()}
    return found + _finish_strays(store, location, sorted(strays), fresh_id, ts)


def spool_files(outside: Path) -> list[Path]:
    """The logs of trails that are kept outside."""
    return sorted(outside.glob("trails-*.log"))


def read_spool(path: Path) -> list[Spooled]:
    """The unfinished trails in a log; none if its process has just removed it."""
    try:
        return list(parse(path, path.read_bytes()).values())
    except FileNotFoundError:
        return []


def key_of(spooled: Spooled) -> Key:
    return spooled.base.feature, spooled.base.job


def trail_files(location: Location) -> dict[Key, Path]:
    """Every trail below `.phasegate`, by feature and job."""
    return {(path.parent.name, path.stem): path for path in sorted(location.trails.glob("*/*.jsonl"))}


def read_trail(path: Path) -> bytes:
    """The bytes of a trail; none if there is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _finish(store: Store, location: Location, spool: Spool, ts: str) -> list[Recovery]:
    spool.cut_torn_end()
    sealed = {seal.job for seal in store.seals()}
    unfinished = [spooled for job, spooled in spool.read().items() if job not in sealed]
    with Trails(location, spool) as trails:
        return [_finish_one(store, location, trails, spooled, ts) for spooled in unfinished]


def _finish_one(store: Store, location: Location, trails: Trails, spooled: Spooled, ts: str) -> Recovery:
    base = spooled.base
    path = trail_path(location, base.feature, base.job)
    comparison = compare(read_trail(path), spooled)
    stands = read_lines(spooled.added, base.hash)
    trails.hold(Base(base.feature, base.job, base.lines + stands.lines, base.bytes + stands.bytes, stands.hash))
    if comparison.broken:
        line, why = comparison.broken
        return Recovery(base.feature, base.job, problem=f"line {line} {why}")
    _complete(path, comparison)
    restored = comparison.missing.count(b"\n")
    _seal(store, trails, base.job, ts, comparison.torn_bytes, restored)
    return Recovery(base.feature, base.job, comparison.torn_bytes, restored)


def _complete(path: Path, comparison: Comparison) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, comparison.whole_bytes)
        os.lseek(descriptor, 0, os.SEEK_END)
        write_all(descriptor, comparison.missing)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _seal(
    store: Store, trails: Trails, job: str, ts: str, torn_bytes: int, restored: int, witnessed: bool = True
) -> Seal:
    fields: dict[str, Value] = {"torn_bytes": torn_bytes, "restored_entries": restored}
    trails.write(job, ts, Done(ACTOR, Action.RECOVERED, Source.OBSERVED, fields))
    seal = trails.close(job)._replace(witnessed=witnessed)
    store.append_now(seal.feature, ts, [trail_sealed(seal)])
    trails.forget(job)
    return seal


def _finish_strays(store: Store, location: Location, keys: list[Key], fresh_id: str, ts: str) -> list[Recovery]:
    """Trails that no log outside holds: it was lost. What is there is sealed as unwitnessed; a torn end is cut off."""
    if not keys:
        return []
    with Trails.create(location, store.heads.folder, fresh_id) as trails:
        return [_finish_stray(store, location, trails, key, ts) for key in keys]


def _finish_stray(store: Store, location: Location, trails: Trails, key: Key, ts: str) -> Recovery:
    feature, id_ = key
    job = store.job(id_)
    if job is None or job.feature != feature:
        return Recovery(feature, id_, problem="no such job was recorded")
    path = trail_path(location, feature, id_)
    reading = read_lines(read_trail(path), origin(feature, id_))
    if reading.broken:
        return Recovery(feature, id_, problem=f"line {reading.broken.position} {reading.broken.why}")
    _complete(path, Comparison(reading.bytes, reading.torn_bytes, b"", None))
    trails.resume(Base(feature, id_, reading.lines, reading.bytes, reading.hash))
    _seal(store, trails, id_, ts, reading.torn_bytes, 0, witnessed=False)
    return Recovery(feature, id_, reading.torn_bytes)
