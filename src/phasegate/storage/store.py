"""The store: one journal of typed events per feature, in SQLite, chained over the whole repository.

A step that `append` has returned from is durable. Readers see whole steps only. Two writers cannot both take the same
step: each names the number of the last event it has seen, and one of them is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from phasegate.core.audit.chain import ChainEntry, Head, entry_hash, origin
from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import MovedOn, StateConflict
from phasegate.git import make_durable
from phasegate.storage.chain_heads import Heads
from phasegate.storage.git_anchor import REF, Anchor, read_anchor, write_anchor
from phasegate.storage.location import Location, prepare_folder
from phasegate.storage.lock import repository_lock
from phasegate.storage.record import WritableRecord
from phasegate.storage.row_events import row_of
from phasegate.storage.rows import TABLES, Event, Row
from phasegate.storage.schema import SCHEMA, Schema, connect, create_store, damaged
from phasegate.typed import read_json

REPOSITORY = ""  # events that concern no feature
ADOPTED = "audit.adopted"
LAST = 1 << 62


class _Adopted(msgspec.Struct, frozen=True):
    lost: list[str]  # the heads that were not there, and began anew


class Store(WritableRecord):
    """An open store, for writing. One object may be shared by threads."""

    def __init__(self, connection: sqlite3.Connection, location: Location) -> None:
        super().__init__(connection, location)
        self._mutex = RLock()
        self._opened = location.store.stat()
        self.heads = Heads(location, self.store_id)

    def _query(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with self._mutex:  # another thread's half-taken step is not to be seen
            rows = list(super()._query(query, *values))
        yield from rows

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[Event]) -> int:
        """Append events to a feature's journal as one durable step; the number of the last one.

        Raises MovedOn, and appends nothing, if the feature's last event is not number `expected_seq`.
        """
        if feature != REPOSITORY:
            require_slug(feature)
        rows = [row_of(feature, event.kind, event.payload) for event in events]
        make_durable()  # a step may rest on what git has written
        with self._mutex, repository_lock(self.location.locks, "journal"), self._explained():
            self._append(feature, expected_seq, ts, events, rows)
        return expected_seq + len(events)

    def append_now(self, feature: str, ts: str, events: Sequence[Event]) -> int:
        """Append events that do not depend on what the feature's last step was."""
        while True:
            try:
                return self.append(feature, self.seq(feature), ts, events)
            except MovedOn:
                continue

    def _append(
        self, feature: str, expected_seq: int, ts: str, events: Sequence[Event], rows: Sequence[Row | None]
    ) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if (seq := self.seq(feature)) != expected_seq:
                raise MovedOn(f"feature {feature} is at step {seq}, not {expected_seq}: another process took a step")
            head = self._insert(self._checked_head(), feature, expected_seq, ts, events)
            for row in rows:
                set_row(self._connection, row)
            self.heads.announce(head)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self.heads.confirm(head)
        self.heads.compact()

    def _checked_head(self) -> Head:
        """The end of the chain, if it is where the heads outside say that it must be."""
        try:
            there = self.location.store.stat()
        except FileNotFoundError as error:
            raise StateConflict(
                f"the store {self.location.store} was removed while it was in use",
                "put back .phasegate, then run again",
            ) from error
        if not os.path.samestat(self._opened, there):
            raise damaged(self.location.store, "it was replaced while it was in use")
        head = self.head()
        if not any(kept[:2] == head[:2] for kept in self.heads.ends()):
            raise self._unknown_end(head)
        return head

    def _unknown_end(self, head: Head) -> StateConflict:
        """The refusal of a store that ends where the heads do not say. It may have been used with other heads."""
        known = max((one.entries for one in self.heads.ends() if self.hash_at(one.entries) == one.hash), default=LAST)
        since = (one for one in self.events(REPOSITORY) if one.position > known and one.kind == ADOPTED)
        below = self.heads.path.parts[-4:]  # in a state folder; a copy of the repository has another place there
        with suppress(msgspec.MsgspecError):
            begun = [Path(lost) for one in since for lost in read_json(one.payload, _Adopted).lost]
            if other := [path for path in begun if path.parts[-4:] == below and path != self.heads.path]:
                return StateConflict(
                    f"the store {self.location.store} was used with another state folder: "
                    f"its heads are kept in {other[-1]}, and those in {self.heads.path} are older",
                    f"start phasegate with XDG_STATE_HOME={other[-1].parents[3]}, in each program that starts it",
                )
        return damaged(
            self.location.store,
            f"it ends at entry {head.entries}, which is not the head kept in {self.heads.path}; "
            "it was changed, or replaced by another copy",
        )

    def _insert(self, head: Head, feature: str, seq: int, ts: str, events: Sequence[Event]) -> Head:
        count, previous = head.entries, head.hash
        for event in events:
            count, seq = count + 1, seq + 1
            entry = ChainEntry(count, feature, seq, ts, event.kind, event.payload)
            previous = entry_hash(previous, entry)
            self._connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", (*entry, previous))
        return Head(count, previous)

    def anchor(self, *, adopting: bool = False) -> None:
        """Put the head into git too. To be done when a job ends, a gate is decided, and a command has finished.

        What somebody else has put there is not overwritten unseen, but where its loss is on record (`adopting`).
        """
        with self._mutex, repository_lock(self.location.locks, "journal"):
            head = self._checked_head()
            if not adopting and self._settle_anchor(read_anchor(self.location.git_dir)):
                raise StateConflict(
                    f"{REF} was removed or moved back by somebody else while it was in use",
                    "what was recorded is safe: the next command puts it on record and goes on",
                )
            write_anchor(self.location.git_dir, Anchor(self.store_id, head.entries, head.hash))
            self.heads.anchored(head)

    def settle(self, ts: str) -> None:
        """Compare the store with the heads outside; begin heads anew that are gone, and put that on record."""
        anchor = read_anchor(self.location.git_dir)
        self._check_identity(anchor)
        lost = self._settle_heads() + self._settle_anchor(anchor)
        if lost:
            self.append_now(REPOSITORY, ts, [Event(ADOPTED, msgspec.json.encode(_Adopted(lost)))])
            self.anchor(adopting=True)

    def _settle_heads(self) -> list[str]:
        with self._mutex, repository_lock(self.location.locks, "journal"):
            kept = self.heads.read()
            if kept is None:
                self.heads.begin(self.head(), adopted=True)
                return [str(self.heads.path)]
            head = self._checked_head()
            if kept.announced:
                self.heads.confirm(head)  # a process died after its announcement; this is what came of it
            return [str(self.heads.path)] if kept.adopted else []

    def _check_identity(self, anchor: Anchor | None) -> None:
        if anchor and anchor.store != self.store_id:
            raise damaged(self.location.store, f"it is not the store of this repository, which {REF} names")

    def _settle_anchor(self, anchor: Anchor | None) -> list[str]:
        if anchor is None:
            return [REF]
        self._check_identity(anchor)
        if self.hash_at(anchor.count) != anchor.hash:
            raise damaged(self.location.store, f"entry {anchor.count} is not the one that {REF} names")
        kept = self.heads.read()
        return [REF] if kept and kept.anchored and kept.anchored.entries > anchor.count else []


def set_row(connection: sqlite3.Connection, row: Row | None) -> None:
    """Put a row that an event carries in its place."""
    if row is not None:
        names, marks = ", ".join(row._fields), ", ".join("?" * len(row))
        query = f"INSERT OR REPLACE INTO {TABLES[type(row)]} ({names}) VALUES ({marks})"  # noqa: S608 - our own names
        connection.execute(query, row)


def open_store(location: Location, fresh_id: str, ts: str, schema: Schema = SCHEMA) -> Store:
    """Open the repository's store for writing; make it, with `fresh_id` as its id, if there never was one."""
    prepare_folder(location)
    with repository_lock(location.locks, "journal"):
        if not os.path.lexists(location.store):
            _create(location, fresh_id, schema)
        store = Store(connect(location.store, write=True, schema=schema), location)
    try:
        store.settle(ts)
    except BaseException:
        store.__exit__()
        raise
    return store


def _create(location: Location, fresh_id: str, schema: Schema) -> None:
    """Identity first, then the heads, then the store: a crash between them leaves nothing that says it had entries."""
    anchor = read_anchor(location.git_dir)
    store_id = anchor.store if anchor else require_slug(fresh_id, "store id")
    heads = Heads(location, store_id)
    kept = heads.read()
    counts = [anchor.count if anchor else 0, *(head.entries for head in (kept.confirmed if kept else ()))]
    if max(counts):
        raise StateConflict(
            f"the store {location.store} is missing, and {max(counts)} entries were recorded in it",
            f"put back .phasegate; or, to start anew on purpose: git update-ref -d {REF}",
        )
    start = Head(0, origin(store_id))
    if anchor is None:
        write_anchor(location.git_dir, Anchor(store_id, 0, start.hash))
    if kept is None:
        heads.begin(start, adopted=False)
    create_store(location.store, store_id, schema)
