"""Repositories with something on record, for tests and benchmarks."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from phasegate.core.audit.chain import ChainEntry, ChainLink
from phasegate.core.audit.trail import Action, Source, TrailEvent
from phasegate.storage.journal_store import Store, open_store
from phasegate.storage.location import Location
from phasegate.storage.row_events import (
    job_ended_event,
    job_started_event,
    package_changed_event,
    trail_sealed_event,
)
from phasegate.storage.rows import JobRow, NewEvent, PackageRow
from phasegate.storage.trail_log import list_log_files, read_open_trails
from phasegate.storage.trail_reader import EntryFields, read_job_trail
from phasegate.storage.trails import TrailWriter

TS = "2026-03-01T10:15:34Z"
FEATURE = "001-user-login"
STORE_ID = "0f1e2d3c"


def make_repository(folder: Path) -> Location:
    """A new git repository, with a state directory of its own beside it."""
    root = folder / "repository"
    root.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return Location(root, root / ".git", folder / "state" / "phasegate")


def open_record(location: Location) -> Store:
    return open_store(location, STORE_ID, TS)


def event(number: int) -> NewEvent:
    return NewEvent("noted", json.dumps({"number": number}).encode())


def append_numbers(store: Store, numbers: Iterable[int], feature: str = FEATURE) -> None:
    for number in numbers:
        store.append_unconditionally(feature, TS, [event(number)])


def wrote(path: str, lines: int) -> TrailEvent:
    return TrailEvent(
        "agent:claude-code", Action.WRITE_FILE, Source.OBSERVED, {"path": path, "lines": lines}
    )


def run_job(
    location: Location, store: Store, id_: str, entries: int, feature: str = FEATURE
) -> None:
    """A job from its start to its end, with a trail of so many entries."""
    job = JobRow(feature, id_, "WP01", "06-implementation", 1, "claude", TS)
    store.append_unconditionally(feature, TS, [job_started_event(job)])
    with TrailWriter.create(location, store.heads.folder, f"writer-{id_}") as trails:
        trails.open(feature, id_)
        for number in range(entries):
            trails.append_entry(id_, TS, wrote(f"src/{number}.py", number))
        seal = trails.close(id_)
        store.append_unconditionally(feature, TS, [job_ended_event(job), trail_sealed_event(seal)])
        trails.forget(id_)


def make_record(location: Location, *, entries: int = 8, trail_lines: int = 6) -> None:
    """A store with numbered events, two packages, and two finished jobs."""
    with open_record(location) as store:
        append_numbers(store, range(entries))
        for id_, state in (("WP01", "DONE"), ("WP02", "DOING")):
            store.append_unconditionally(
                FEATURE, TS, [package_changed_event(PackageRow(FEATURE, id_, "a title", state))]
            )
        run_job(location, store, "job-a", trail_lines)
        run_job(location, store, "job-b", trail_lines)
        store.anchor()


def trail_of(location: Location, job: str = "job-a") -> Path:
    return location.trails_folder / FEATURE / f"{job}.jsonl"


def entries_of(location: Location, job: str = "job-a") -> list[EntryFields]:
    """The entries of a trail, open or closed."""
    return read_job_trail(location, job, FEATURE)[1]


def open_content(store: Store, job: str) -> bytes:
    """What the log outside holds of an open trail."""
    trails = [
        trail for log in list_log_files(store.heads.folder) for trail in read_open_trails(log)
    ]
    return next(trail.content for trail in trails if trail.job == job)


def read_links(location: Location) -> list[ChainLink]:
    """The chain, as anybody who can read the file sees it."""
    with closing(sqlite3.connect(location.store_path)) as connection:
        rows = connection.execute(
            "SELECT position, feature, seq, ts, kind, payload, hash FROM event ORDER BY position"
        )
        return [ChainLink(ChainEntry(*row[:-1]), row[-1]) for row in rows]


def write_links(location: Location, links: Iterable[ChainLink]) -> None:
    """Put another chain into the store, as anybody can who can write the file; no constraint is in the way."""
    with closing(sqlite3.connect(location.store_path)) as connection, connection:
        connection.execute("DROP TABLE event")
        connection.execute("CREATE TABLE event (position, feature, seq, ts, kind, payload, hash)")
        connection.executemany(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*link.entry, link.hash) for link in links],
        )
