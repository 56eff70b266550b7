"""The audit trails and the chain of state changes, for people who look into them or verify them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from phasegate.storage.audit import AuditReport as AuditReport
from phasegate.storage.audit import verify
from phasegate.storage.location import Location, locate
from phasegate.storage.reader import read_store
from phasegate.storage.rows import Recorded
from phasegate.storage.trail_reader import JobWork, TrailSummary, list_trails, work_of
from phasegate.typed import read_json

__all__ = ["AuditReport", "JobWork", "Recorded", "TrailSummary", "work_of"]


def location_of(folder: Path) -> Location:
    """The repository around a folder."""
    return locate(folder, os.environ)


def verified(folder: Path) -> AuditReport:
    """The journal, its tables and all trails, held against each other and against the heads kept outside."""
    location = location_of(folder)
    if location.copy is None:
        return verify(location)
    from phasegate.engine.bucket import verified_remotely  # it loads obstore

    return verified_remotely(location.root)  # a copy proves nothing: the bucket is asked


def trails(folder: Path, feature: str | None) -> list[TrailSummary]:
    """The trails of a feature, or of all, oldest first."""
    return list_trails(location_of(folder), feature)


def chain(folder: Path, feature: str | None) -> list[Recorded]:
    """The state changes on record, of a feature or of all."""
    reader = read_store(location_of(folder))
    if reader is None:
        return []
    with reader:
        return [event for event in reader.events_since() if feature in (None, event.feature)]


def chain_page(folder: Path, feature: str | None, before: int, most: int) -> list[Recorded]:
    """At most so many state changes before a position, the newest first."""
    reader = read_store(location_of(folder))
    if reader is None:
        return []
    with reader:
        return reader.events_before(before, most, feature)


def payload_of(event: Recorded) -> object:
    """What an event carries; as text where it is no JSON."""
    try:
        return read_json(event.payload)
    except msgspec.MsgspecError:
        return event.payload.decode("utf-8", "backslashreplace")
