"""The trails, for people: which there are, closed or open, and what is in one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import msgspec

from phasegate.core.text.visible import visible
from phasegate.errors import ConfigError, StateConflict
from phasegate.storage.chain_heads import outside_folder
from phasegate.storage.location import Location
from phasegate.storage.reader import Reader, read_store
from phasegate.storage.rows import Job
from phasegate.storage.trail_files import Key, read_trail, trail_files
from phasegate.storage.trail_log import log_files, read_log
from phasegate.typed import read_json

Fields = dict[str, object]
T = TypeVar("T")


class JobWork(msgspec.Struct, frozen=True):
    """What a job was for, and what became of it."""

    work: str  # the package, else the key of the phase
    role: str
    round: int
    agent: str  # as configured
    outcome: str  # empty: it is at work


def work_of(row: Job) -> JobWork:
    return JobWork(row.wp or row.workflow_phase, row.phase, row.round, row.agent, row.outcome)


class TrailSummary(msgspec.Struct, frozen=True):
    """One trail in a line."""

    feature: str
    job: str
    entries: int
    first_ts: str
    last_ts: str
    last_action: str
    about: JobWork | None = None  # None where the store does not know the job


def list_trails(location: Location, feature: str | None = None) -> list[TrailSummary]:
    """The trails of a feature, or of all, oldest first."""
    trails = {key: lines for key, lines in _all_trails(location).items() if feature in (None, key[0])}
    rows = {row.id: row for row in _from_store(location, lambda reader: reader.all_rows(Job))}
    found = (_summary(*trail, rows.get(trail[0][1])) for trail in trails.items())
    return sorted(found, key=lambda trail: (trail.first_ts, trail.job))


def read_job(location: Location, job: str, feature: str | None = None) -> tuple[Key, list[Fields]]:
    """The entries of one job's trail; the beginning of its id is enough if only one begins so."""
    trails = _all_trails(location)
    keys = [key for key in trails if key[1].startswith(job) and feature in (None, key[0])]
    exact = [key for key in keys if key[1] == job]
    found = exact or keys
    if len(found) != 1:
        why = f"{len(found)} trails begin" if found else "no trail begins"
        raise ConfigError(f"{why} with job '{visible(job[:120])}'", "`phasegate audit show` lists them")
    return found[0], _entries(trails[found[0]])


def _all_trails(location: Location) -> dict[Key, bytes | Path]:
    """Every trail: its file, or what the log outside holds of it while it is open."""
    trails: dict[Key, bytes | Path] = dict(trail_files(location))
    logs = _from_store(location, lambda reader: log_files(outside_folder(location, reader.store_id)))
    for trail in (trail for log in logs for trail in read_log(log)):
        trails[trail.feature, trail.job] = trail.content
    return trails


def _from_store(location: Location, ask: Callable[[Reader], list[T]]) -> list[T]:
    """What the store answers; nothing where it is damaged: what is finished can still be looked at."""
    try:
        with read_store(location) or nullcontext() as reader:
            return ask(reader) if reader else []
    except StateConflict:
        return []


def _entries(trail: bytes | Path) -> list[Fields]:
    content = trail if isinstance(trail, bytes) else read_trail(trail)
    return [read_entry(line) for line in content.splitlines()]


def read_entry(line: bytes) -> Fields:
    """One line of a trail."""
    try:
        fields: Fields = read_json(line, dict[str, object])
    except msgspec.MsgspecError:
        return {"unreadable": line.decode("utf-8", "backslashreplace")}
    return fields


def _summary(key: Key, trail: bytes | Path, row: Job | None) -> TrailSummary:
    entries = _entries(trail)
    first, last = (entries[0], entries[-1]) if entries else ({}, {})
    times = str(first.get("ts", "")), str(last.get("ts", ""))
    action = str(last.get("action", "unreadable"))
    return TrailSummary(*key, len(entries), *times, action, work_of(row) if row else None)
