"""The audit trail: durable entries of eight threads, and `audit verify` over a thousand items."""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from bench.measure import Row, command, in_turn
from phasegate.core.audit.trail import Action, Source, TrailEvent, chain_entry, encode_entry
from phasegate.storage.journal_store import Store, open_store
from phasegate.storage.location import Location
from phasegate.storage.row_events import job_ended_event, job_started_event, trail_sealed_event
from phasegate.storage.rows import JobRow, NewEvent
from phasegate.storage.trails import TrailWriter

FSYNC_GOAL, SQLITE_GOAL, VERIFY_GOAL = 2.5, 4, 15
WRITERS, ENTRIES, ROUNDS = 8, 150, 9
FEATURE, TS = "001-user-login", "2026-03-01T10:15:34Z"


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        busy, location = (
            make_repository(Path(room) / "busy"),
            make_repository(Path(room) / "filled"),
        )
        with open_store(busy, "bench", TS) as store:
            durable = durable_rows(busy, store, Path(room))
        with open_store(location, "bench", TS) as store:
            fill(location, store, entries=1000, trails=20, lines=50)
        return [*durable, verify_row(location, "audit verify, 1 000 entries and 1 000 trail lines")]


def make_repository(room: Path) -> Location:
    """A repository whose state directory is in the same place."""
    root = room / "repository"
    root.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return Location(root, root / ".git", room / "state" / "phasegate")


def done(number: int) -> TrailEvent:
    return TrailEvent(
        "agent:claude-code",
        Action.WRITE_FILE,
        Source.OBSERVED,
        {"path": "src/auth/models.rs", "lines": number},
    )


def durable_rows(location: Location, store: Store, room: Path) -> list[Row]:
    """Eight threads that each wait for their entry to be durable, in turn with the same without group commit."""
    log = os.open(room / "reference.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    turn = threading.Lock()
    with TrailWriter.create(location, store.heads.folder, "bench") as trails, ExitStack() as open_:
        databases = [open_.enter_context(closing(open_database(room))) for _ in range(WRITERS)]
        for writer in range(WRITERS):
            start_job(store, trails, f"durable-{writer}")

        def ours(writer: int, number: int) -> None:
            trails.append_entry(f"durable-{writer}", TS, done(number))

        def one_fsync_an_entry(writer: int, number: int) -> None:
            with turn:
                os.write(
                    log, chain_entry("0" * 64, encode_entry(TS, str(writer), done(number))).line
                )
                os.fsync(log)

        def one_transaction_an_entry(writer: int, number: int) -> None:
            line = chain_entry("0" * 64, encode_entry(TS, str(writer), done(number))).line
            databases[writer].execute("INSERT INTO entry VALUES (?)", (line,))

        rates = rates_in_turn(ours, one_fsync_an_entry, one_transaction_an_entry)
        for writer in range(WRITERS):
            end_job(store, trails, f"durable-{writer}")
    os.close(log)
    return [
        Row(
            "durable audit, 8 writers, against one fsync an entry",
            rates[0],
            rates[1],
            FSYNC_GOAL,
            True,
            "entries/s",
        ),
        Row(
            "the same, against SQLite FULL (WAL), a connection each",
            rates[0],
            rates[2],
            SQLITE_GOAL,
            True,
            "entries/s",
        ),
    ]


def open_database(room: Path) -> sqlite3.Connection:
    database = sqlite3.connect(
        room / "reference.db", isolation_level=None, check_same_thread=False, timeout=60
    )
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE IF NOT EXISTS entry (line BLOB)")
    return database


def rates_in_turn(*works: Callable[[int, int], None]) -> list[float]:
    """Entries a second, the median of several rounds. By the wall clock: what is measured is waiting for the disk."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for position, work in enumerate(works):
            found[position].append(rate(work))
    return [statistics.median(rates) for rates in found]


def rate(work: Callable[[int, int], None]) -> float:
    def run(writer: int) -> None:
        for number in range(ENTRIES):
            work(writer, number)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(WRITERS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return WRITERS * ENTRIES / (time.perf_counter() - started)


def start_job(store: Store, trails: TrailWriter, id_: str) -> None:
    store.append_unconditionally(
        FEATURE,
        TS,
        [job_started_event(JobRow(FEATURE, id_, "WP01", "06-implementation", 1, "claude", TS))],
    )
    trails.open(FEATURE, id_)


def end_job(store: Store, trails: TrailWriter, id_: str) -> None:
    seal = trails.close(id_)
    job = JobRow(FEATURE, id_, "WP01", "06-implementation", 1, "claude", TS, TS, "done")
    store.append_unconditionally(FEATURE, TS, [job_ended_event(job), trail_sealed_event(seal)])
    trails.forget(id_)


def fill(location: Location, store: Store, *, entries: int, trails: int, lines: int) -> None:
    """So many entries in the journal, and so many trails of so many lines."""
    store.append_unconditionally(
        FEATURE, TS, [NewEvent("noted", b'{"number": %d}' % number) for number in range(entries)]
    )
    with TrailWriter.create(location, store.heads.folder, "fill") as writer:
        for trail in range(trails):
            start_job(store, writer, f"filled-{trail}")
            for number in range(lines):
                writer.append_entry(f"filled-{trail}", TS, done(number))
            end_job(store, writer, f"filled-{trail}")
    store.anchor()


def verify_row(location: Location, name: str) -> Row:
    verify = [str(Path(sys.executable).with_name("phasegate")), "audit", "verify"]
    os.environ["XDG_STATE_HOME"] = str(location.state_home.parent)
    said = subprocess.run(
        verify, cwd=location.root, check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith("verified: ")
    ours, nothing = in_turn(
        command(verify, location.root), command([sys.executable, "-c", "pass"], location.root)
    )
    return Row(name, ours, nothing, VERIFY_GOAL)
