"""List closed and open trails, and read one, for display."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import msgspec

from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import ConfigError, StateConflict
from phasegate.storage.chain_heads import get_heads_folder
from phasegate.storage.location import Location
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.rows import JobRow
from phasegate.storage.trail_files import TrailKey, list_trail_files, read_trail
from phasegate.storage.trail_log import list_log_files, read_open_trails
from phasegate.typed import read_json

EntryFields = dict[str, object]
T = TypeVar("T")


class JobWork(msgspec.Struct, frozen=True):
    """What a job worked on, and its outcome."""

    # The package, or else the phase key
    work: str
    role: str
    round: int
    # As configured
    agent: str
    # Empty while it runs
    outcome: str


def describe_job_work(row: JobRow) -> JobWork:
    return JobWork(
        work=row.wp or row.workflow_phase,
        role=row.phase,
        round=row.round,
        agent=row.agent,
        outcome=row.outcome,
    )


class TrailSummary(msgspec.Struct, frozen=True):
    """The data of one trail for a line in a list."""

    feature: str
    job: str
    entries: int
    first_ts: str
    last_ts: str
    last_action: str
    # None if the store does not know the job
    about: JobWork | None = None


def list_trails(location: Location, feature: str | None = None) -> list[TrailSummary]:
    """Return the trails of a feature, or of all features, oldest first."""
    trails = {
        key: lines for key, lines in _find_all_trails(location).items() if feature in (None, key[0])
    }
    rows = {row.id: row for row in _query_store(location, lambda reader: reader.all_rows(JobRow))}
    found = (_summarize_trail(*trail, rows.get(trail[0][1])) for trail in trails.items())

    return sorted(found, key=lambda trail: (trail.first_ts, trail.job))


def read_job_trail(
    location: Location, job_prefix: str, feature: str | None = None
) -> tuple[TrailKey, list[EntryFields]]:
    """Return the entries of one job's trail.

    `job_prefix` is the job's id or a unique prefix of it.
    """
    trails = _find_all_trails(location)
    keys = [key for key in trails if key[1].startswith(job_prefix) and feature in (None, key[0])]
    exact = [key for key in keys if key[1] == job_prefix]
    found = exact or keys

    if len(found) != 1:
        if found:
            why = f"{len(found)} trails begin"
        else:
            why = "no trail begins"

        raise ConfigError(
            f"{why} with job '{escape_unprintable(job_prefix[:120])}'",
            "`phasegate audit show` lists them",
        )

    return found[0], _parse_entries(trails[found[0]])


def _find_all_trails(location: Location) -> dict[TrailKey, bytes | Path]:
    """Return every trail: the path of a closed one, the content of an open one."""
    trails: dict[TrailKey, bytes | Path] = dict(list_trail_files(location))
    logs = _query_store(
        location, lambda reader: list_log_files(get_heads_folder(location, reader.store_id))
    )
    for trail in (trail for log in logs for trail in read_open_trails(log)):
        trails[trail.feature, trail.job] = trail.content

    return trails


def _query_store(location: Location, query: Callable[[StoreReader], list[T]]) -> list[T]:
    """Return the result of a query on the store.

    Return an empty list if the store is damaged, so that closed trails can still be read.
    """
    try:
        with open_store_reader(location) or nullcontext() as reader:
            if reader:
                return query(reader)
            return []
    except StateConflict:
        return []


def _parse_entries(trail: bytes | Path) -> list[EntryFields]:
    """Parse all entries of a trail, which is given as its content or as the path of its file."""
    if isinstance(trail, bytes):
        content = trail
    else:
        content = read_trail(trail)
    return [parse_entry(line) for line in content.splitlines()]


def parse_entry(line: bytes) -> EntryFields:
    """Parse one line of a trail."""
    try:
        fields: EntryFields = read_json(line, dict[str, object])
    except msgspec.MsgspecError:
        return {"unreadable": line.decode("utf-8", "backslashreplace")}
    return fields


def _summarize_trail(key: TrailKey, trail: bytes | Path, row: JobRow | None) -> TrailSummary:
    """Summarize a trail: number of entries, first and last time, last action and the job's work."""
    entries = _parse_entries(trail)
    if entries:
        first, last = (entries[0], entries[-1])
    else:
        first, last = ({}, {})

    times = str(first.get("ts", "")), str(last.get("ts", ""))
    action = str(last.get("action", "unreadable"))

    return TrailSummary(*key, len(entries), *times, action, describe_job_work(row) if row else None)
