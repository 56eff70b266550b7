"""Read and verify the audit trails and the chain of state changes."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from phasegate.storage.location import Location, locate_repository
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import RecordedEvent
from phasegate.storage.trail_reader import JobWork, TrailSummary, describe_job_work, list_trails
from phasegate.storage.verify_audit import AuditReport as AuditReport
from phasegate.storage.verify_audit import verify_audit
from phasegate.typed import read_json

__all__ = ["AuditReport", "JobWork", "RecordedEvent", "TrailSummary", "describe_job_work"]


def find_location(folder: Path) -> Location:
    """Locate the repository that contains a folder."""
    return locate_repository(folder, os.environ)


def verify_audit_trail(folder: Path) -> AuditReport:
    """Verify the journal, its tables, all trails and the chain heads stored outside."""
    location = find_location(folder)
    if location.fleet_copy is None:
        return verify_audit(location)

    # Imported here: it loads obstore.
    from phasegate.engine.bucket import verify_bucket_copy

    # The local copy proves nothing: the bucket itself is verified.
    return verify_bucket_copy(location.root)


def list_feature_trails(folder: Path, feature: str | None) -> list[TrailSummary]:
    """List the trails of a feature, or of all, oldest first."""
    return list_trails(find_location(folder), feature)


def read_chain(folder: Path, feature: str | None) -> list[RecordedEvent]:
    """Read the recorded state changes of a feature, or of all."""
    reader = open_store_reader(find_location(folder))
    if reader is None:
        return []
    with reader:
        return [event for event in reader.events_since() if feature in (None, event.feature)]


def read_chain_page(
    folder: Path, feature: str | None, before: int, limit: int
) -> list[RecordedEvent]:
    """Read up to `limit` state changes before a position, newest first."""
    reader = open_store_reader(find_location(folder))
    if reader is None:
        return []
    with reader:
        return reader.events_before(before, limit, feature)


def decode_payload(event: RecordedEvent) -> object:
    """Decode an event's payload; return it as text if it is not JSON."""
    try:
        return read_json(event.payload)
    except msgspec.MsgspecError:
        return event.payload.decode("utf-8", "backslashreplace")
