"""A project without git and a record without a disk, for tests of values in and values out."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from phasegate.config.settings import Config
from phasegate.engine.project.check_record import CheckRecord
from phasegate.engine.project.project import Project
from phasegate.errors import MovedOn
from phasegate.sandbox.job import StopEvent
from phasegate.storage.journal_store import upsert_row
from phasegate.storage.location import Location
from phasegate.storage.record import WritableStore
from phasegate.storage.row_events import decode_row
from phasegate.storage.rows import NewEvent
from phasegate.storage.schema import SCHEMA
from phasegate.workspace.repository.repository import Repository
from support.memory_ports import CountingClock, MemoryPapers, MemoryRefs

TS = "2026-01-01T00:00:00.000Z"


class MemoryStore(WritableStore):
    """A store in memory: the tables and queries of the real one, without chain, locks and disk."""

    def __init__(self, folder: Path) -> None:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.executescript(SCHEMA.create_sql)
        connection.execute("INSERT INTO meta VALUES ('store_id', '0f1e2d3c')")
        super().__init__(connection, make_location(folder))

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]) -> int:
        seq = self.last_seq(feature)
        if seq != expected_seq:
            raise MovedOn(f"feature {feature} is at step {seq}, not {expected_seq}")
        for number, event in enumerate(events, seq + 1):
            self._connection.execute(
                "INSERT INTO event (feature, seq, ts, kind, payload, hash) VALUES (?,?,?,?,?,'')",
                (feature, number, ts, event.kind, event.payload),
            )
            upsert_row(self._connection, decode_row(feature, event.kind, event.payload))
        return seq + len(events)

    def append_unconditionally(self, feature: str, ts: str, events: Sequence[NewEvent]) -> int:
        return self.append(feature, self.last_seq(feature), ts, events)

    def anchor(self) -> None:
        return


def make_location(folder: Path) -> Location:
    """The places of a repository that does not exist yet."""
    root = folder / "repository"
    return Location(root, root / ".git", folder / "state")


def make_plain_project(
    folder: Path, config: Config | None = None, branches: Mapping[str, str] | None = None
) -> Project:
    """A project whose clock counts and whose documents and branches are in memory."""
    location = make_location(folder)
    return Project(
        root=location.root,
        repository=Repository(location.root, location.git_dir, location.git_dir, "sha1"),
        location=location,
        config=config or Config(),
        stop=StopEvent(),
        refs=MemoryRefs(branches or {}),
        document_store=MemoryPapers(),
        activities={},
        running_commands={},
        check_record=CheckRecord(),
        clock=CountingClock(),
    )
