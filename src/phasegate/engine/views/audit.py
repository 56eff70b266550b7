"""Read and verify the audit trails and the chain of state changes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from phasegate.core.display.event_lines import render_package_event
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    read_feature_step,
    read_package_step,
)
from phasegate.storage.location import Location, locate_repository
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import RecordedEvent
from phasegate.storage.trail_reader import JobWork, TrailSummary, describe_job_work, list_trails
from phasegate.storage.verify_audit import AuditReport as AuditReport
from phasegate.storage.verify_audit import verify_audit
from phasegate.typed import read_json

__all__ = ["AuditReport", "JobWork", "RecordedEvent", "TrailSummary", "describe_job_work"]


# Fields of a feature's event that say what happened
_DETAIL_FIELDS = ("description", "role", "agent", "verdict", "reason", "why", "how", "package")
# Fields of other entries
_SHOWN_FIELDS = ("work", "wp", "id", "phase", "agent", "outcome", "state", "step", "path", "text")


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
    folder: Path, feature: str | None, before: int, limit: int, kind: str | None = None
) -> list[RecordedEvent]:
    """Read up to `limit` state changes before a position, newest first."""
    reader = open_store_reader(find_location(folder))
    if reader is None:
        return []
    with reader:
        return reader.events_before(before, limit, feature, kind)


def describe_entry(entry: RecordedEvent) -> str:
    """Describe a recorded state change in one sentence."""
    if entry.kind == PACKAGE_STEP:
        package, step = read_package_step(entry.payload)
        return render_package_event(package, step) or f"{package}: {_name_event(step)}"
    if entry.kind == FEATURE_STEP:
        event = read_feature_step(entry.payload)
        details = (getattr(event, name, "") for name in _DETAIL_FIELDS)
        said = "; ".join(" ".join(str(text).split())[:200] for text in details if text)
        name = _name_event(event)
        return f"{name}: {said}" if said else name

    content = decode_payload(entry)
    fields = content if isinstance(content, dict) else {}
    texts = (f"{name} {fields[name]}" for name in _SHOWN_FIELDS if fields.get(name))
    return f"{entry.kind.replace('.', ' ')}: {', '.join(texts)}"[:300].rstrip(": ")


def _name_event(event: object) -> str:
    """Return the class name of an event in words: `GateChecked` is `gate checked`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()


def decode_payload(event: RecordedEvent) -> object:
    """Decode an event's payload; return it as text if it is not JSON."""
    try:
        return read_json(event.payload)
    except msgspec.MsgspecError:
        return event.payload.decode("utf-8", "backslashreplace")
