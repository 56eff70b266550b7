"""What the next process finds after a crash of `crash/record_scenario.py`."""

from __future__ import annotations

import json
from pathlib import Path

from phasegate.storage.journal_store import open_store
from phasegate.storage.location import Location
from phasegate.storage.trail_recovery import recover_trails
from phasegate.storage.verify_audit import AuditReport, verify_audit

TS = "2026-03-01T10:15:34Z"
FEATURE = "001-login"


def location_in(folder: Path) -> Location:
    return Location(
        folder / "repository", folder / "repository" / ".git", folder / "state" / "phasegate"
    )


def acknowledged(folder: Path) -> list[str]:
    path = folder / "acknowledged"
    return path.read_text().splitlines() if path.exists() else []


def recovered(folder: Path) -> AuditReport:
    """The next process opens the store, recovers, and everything verifies."""
    location = location_in(folder)
    with open_store(location, "store-id", TS) as store:
        assert [
            found for found in recover_trails(store, location, "recovery-test", TS) if found.problem
        ] == []
    return verify_audit(location)


def what_is_missing(folder: Path) -> set[str]:
    """Acknowledged steps that are not on record."""
    location = location_in(folder)
    with open_store(location, "store-id", TS) as store:
        kinds = {(e.kind, json.loads(e.payload).get("id", "")) for e in store.events(FEATURE)}
    there = {f"started {id_}" for kind, id_ in kinds if kind == "job.started"}
    there |= {f"ended {id_}" for kind, id_ in kinds if kind == "job.ended"}
    there |= {"noted"} if ("noted", "") in kinds else set()
    for path in location.trails_folder.glob("*/*.jsonl"):
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        wrote = [entry["lines"] for entry in entries if entry["action"] == "write_file"]
        assert wrote == [*range(len(wrote))], "in their order, and none twice"
        there |= {f"entry {path.stem} {number}" for number in wrote}
    return {
        what for what in acknowledged(folder) if not what.startswith(("anchored", "ready"))
    } - there
