"""The trails, for people: which there are, and what is in one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from phasegate.errors import ConfigError
from phasegate.record.location import Location
from phasegate.record.recovery import Key, read_trail, trail_files
from phasegate.rules.visible_text import visible

Fields = dict[str, object]


class TrailSummary(msgspec.Struct, frozen=True):
    """One trail in a line."""

    feature: str
    job: str
    entries: int
    first_ts: str
    last_ts: str
    last_action: str


def list_trails(location: Location, feature: str | None = None) -> list[TrailSummary]:
    """The trails of a feature, or of all, oldest first."""
    keys = [key for key in trail_files(location) if feature in (None, key[0])]
    return sorted((_summary(location, key) for key in keys), key=lambda trail: (trail.first_ts, trail.job))


def read_job(location: Location, job: str, feature: str | None = None) -> tuple[Key, list[Fields]]:
    """The entries of one job's trail; the beginning of its id is enough if only one begins so."""
    keys = [key for key in trail_files(location) if key[1].startswith(job) and feature in (None, key[0])]
    exact = [key for key in keys if key[1] == job]
    found = exact or keys
    if len(found) != 1:
        why = f"{len(found)} trails begin" if found else "no trail begins"
        raise ConfigError(f"{why} with job '{visible(job[:120])}'", "`phasegate audit show` lists them")
    return found[0], _entries(location, found[0])


def job_logs(location: Location, job: str) -> list[Path]:
    """Where a job's output is kept, as far as it had any."""
    logs = (location.jobs / job / f"{name}.log" for name in ("stdout", "stderr"))
    return [log.relative_to(location.root) for log in logs if log.is_file() and log.stat().st_size]


def _entries(location: Location, key: Key) -> list[Fields]:
    return [_entry(line) for line in read_trail(trail_files(location)[key]).splitlines()]


def _entry(line: bytes) -> Fields:
    try:
        fields: Fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return {"unreadable": line.decode("utf-8", "backslashreplace")}
    return fields


def _summary(location: Location, key: Key) -> TrailSummary:
    entries = _entries(location, key)
    first, last = (entries[0], entries[-1]) if entries else ({}, {})
    return TrailSummary(
        *key, len(entries), str(first.get("ts", "")), str(last.get("ts", "")), str(last.get("action", "unreadable"))
    )
