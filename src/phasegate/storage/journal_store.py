"""The store: one journal of typed events per feature, in SQLite, chained over the whole repository.

A step is durable when `append` returns. Readers see complete steps only. Two writers cannot both
append the same step: each names the number of the last event it has seen, and one of them is
refused.
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

from phasegate.core.audit.chain import ChainHead, chain_origin_hash, make_links
from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import MovedOn, StateConflict
from phasegate.git import sync_written_folders
from phasegate.storage.chain_heads import ChainHeadsFile, RecordedHeads, refuse_foreign_store
from phasegate.storage.git_anchor import ANCHOR_REF, Anchor, read_anchor, write_anchor
from phasegate.storage.location import Location, prepare_data_folder
from phasegate.storage.lock import named_lock
from phasegate.storage.record import WritableStore
from phasegate.storage.row_events import decode_row
from phasegate.storage.rows import TABLE_NAMES, NewEvent, Row
from phasegate.storage.schema import (
    SCHEMA,
    Schema,
    connect_store,
    create_store,
    damaged_store_error,
)
from phasegate.typed import read_json

# Events that concern no feature
NO_FEATURE = ""
HEADS_ADOPTED = "audit.adopted"
MAX_POSITION = 1 << 62


class _HeadsAdopted(msgspec.Struct, frozen=True):
    # Chain heads that were missing and were recreated
    lost: list[str]


class Store(WritableStore):
    """A store that is open for writing. Threads may share one instance."""

    def __init__(self, connection: sqlite3.Connection, location: Location) -> None:
        super().__init__(connection, location)
        self._mutex = RLock()
        self._opened_stat = location.store_path.stat()
        self.heads = ChainHeadsFile(location, self.store_id)

    def _query(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        # Do not read another thread's incomplete step
        with self._mutex:
            rows = list(super()._query(query, *values))
        yield from rows

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events to a feature's journal as one durable step; return the number of the last
        one.

        Raises MovedOn, and appends nothing, if the feature's last event is not number
        `expected_seq`.
        """
        if feature != NO_FEATURE:
            require_slug(feature)

        rows = [decode_row(feature, event.kind, event.payload) for event in events]
        # A step may refer to objects that git has written
        sync_written_folders()
        with (
            self._mutex,
            named_lock(self.location.locks_folder, "journal"),
            self._translate_errors(),
        ):
            self._append(feature, expected_seq, ts, events, rows)

        return expected_seq + len(events)

    def _append(
        self,
        feature: str,
        expected_seq: int,
        ts: str,
        events: Sequence[NewEvent],
        rows: Sequence[Row | None],
    ) -> None:
        """Append events and rows in one transaction, announced and confirmed in the heads."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if (seq := self.last_seq(feature)) != expected_seq:
                raise MovedOn(
                    f"feature {feature} is at step {seq}, not {expected_seq}: another process took"
                    " a step"
                )

            head = self._read_verified_head()
            for entry, digest in make_links(head, feature, expected_seq, ts, events):
                self._connection.execute(
                    "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", (*entry, digest)
                )
                head = ChainHead(entry.position, digest)

            for row in rows:
                upsert_row(self._connection, row)

            self.heads.announce(head)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

        self.heads.confirm(head)
        self.heads.compact()

    def _read_verified_head(self) -> ChainHead:
        """Return the end of the chain; raise an error if the chain heads do not contain it."""
        try:
            there = self.location.store_path.stat()
        except FileNotFoundError as error:
            raise StateConflict(
                f"the store {self.location.store_path} was removed while it was in use",
                "restore .phasegate, then run again",
            ) from error

        if not os.path.samestat(self._opened_stat, there):
            raise damaged_store_error(
                self.location.store_path, "it was replaced while it was in use"
            )

        head = self.chain_head()
        if not any(kept[:2] == head[:2] for kept in self.heads.read_possible_ends()):
            raise self._unknown_head_error(head)

        return head

    def _unknown_head_error(self, head: ChainHead) -> StateConflict:
        """Return the error for a store whose end is not among the chain heads.

        The store may have been used with another state directory.
        """
        known = max(
            (
                one.entries
                for one in self.heads.read_possible_ends()
                if self.chain_hash_at(one.entries) == one.hash
            ),
            default=MAX_POSITION,
        )

        since = (
            one
            for one in self.events(NO_FEATURE)
            if one.position > known and one.kind == HEADS_ADOPTED
        )
        # Relative to the state folder; a copy of the repository has a different path there
        below = self.heads.path.parts[-4:]
        with suppress(msgspec.MsgspecError):
            started = [
                Path(lost) for one in since for lost in read_json(one.payload, _HeadsAdopted).lost
            ]
            if other := [
                path for path in started if path.parts[-4:] == below and path != self.heads.path
            ]:
                return StateConflict(
                    f"the store {self.location.store_path} was used with another state folder: "
                    f"its heads are kept in {other[-1]}, and those in {self.heads.path} are older",
                    f"start phasegate with XDG_STATE_HOME={other[-1].parents[3]}, in each program"
                    " that starts it",
                )

        return damaged_store_error(
            self.location.store_path,
            f"it ends at entry {head.entries}, which is not the head kept in {self.heads.path}; "
            "it was changed, or replaced by another copy",
        )

    def anchor(self, *, replace_lost_anchor: bool = False) -> None:
        """Anchor the head in git; called when a job ends, a gate is decided or a command has
        finished.

        A missing or older anchor is an error, unless its loss has been recorded
        (`replace_lost_anchor`).
        """
        with self._mutex, named_lock(self.location.locks_folder, "journal"):
            head = self._read_verified_head()
            if not replace_lost_anchor and self._find_lost_anchor(
                read_anchor(self.location.git_dir)
            ):
                raise StateConflict(
                    f"{ANCHOR_REF} was removed or moved back by another process while it was"
                    " in use",
                    "repeat the command: the recorded data is safe, and the loss is recorded",
                )

            write_anchor(self.location.git_dir, Anchor(self.store_id, head.entries, head.hash))
            self.heads.confirm_anchored(head)

    def reconcile_heads(self, ts: str) -> None:
        """Compare the store with the chain heads.

        Missing heads are recreated, and their loss is recorded in the journal.
        """
        anchor = read_anchor(self.location.git_dir)
        self._check_store_id(anchor)
        refuse_foreign_store(self)
        lost = self._reconcile_chain_heads() + self._find_lost_anchor(anchor)

        if lost:
            self.append_unconditionally(
                NO_FEATURE, ts, [NewEvent(HEADS_ADOPTED, msgspec.json.encode(_HeadsAdopted(lost)))]
            )
            self.anchor(replace_lost_anchor=True)

    def _reconcile_chain_heads(self) -> list[str]:
        """Confirm or recreate the chain heads; return the ones that were lost."""
        with self._mutex, named_lock(self.location.locks_folder, "journal"):
            kept = self.heads.read()
            if kept is None:
                self.heads.create(self.chain_head(), adopted=True)
                return [str(self.heads.path)]

            head = self._read_verified_head()
            if kept.announced:
                # A process died after it announced this head and committed: confirm the head
                self.heads.confirm(head)
            if kept.is_adoption_pending:
                return [str(self.heads.path)]

            return []

    def _check_store_id(self, anchor: Anchor | None) -> None:
        if anchor and anchor.store != self.store_id:
            raise damaged_store_error(
                self.location.store_path,
                f"{ANCHOR_REF} names another store for this repository",
            )

    def _find_lost_anchor(self, anchor: Anchor | None) -> list[str]:
        """Return the anchor ref if it was deleted or moved back; empty if it is up to date.

        Raise if the anchor contradicts the journal, which then was changed.
        """
        if anchor is None:
            return [ANCHOR_REF]

        self._check_store_id(anchor)
        if self.chain_hash_at(anchor.count) != anchor.hash:
            raise damaged_store_error(
                self.location.store_path,
                f"entry {anchor.count} does not match {ANCHOR_REF}",
            )

        kept = self.heads.read()
        if kept and kept.anchored and kept.anchored.entries > anchor.count:
            return [ANCHOR_REF]

        return []


def upsert_row(connection: sqlite3.Connection, row: Row | None) -> None:
    """Insert or replace the row that an event sets."""
    if row is not None:
        names = ", ".join(row._fields)
        marks = ", ".join("?" * len(row))
        query = f"INSERT OR REPLACE INTO {TABLE_NAMES[type(row)]} ({names}) VALUES ({marks})"  # noqa: S608 - our own names
        connection.execute(query, row)


def open_store(location: Location, new_store_id: str, ts: str, schema: Schema = SCHEMA) -> Store:
    """Open the repository's store for writing.

    If there never was a store, create one with `new_store_id`.
    """
    prepare_data_folder(location)
    with named_lock(location.locks_folder, "journal"):
        if not os.path.lexists(location.store_path):
            _create_store_with_heads(location, new_store_id, schema)

        store = Store(connect_store(location.store_path, write=True, schema=schema), location)

    try:
        store.reconcile_heads(ts)
    except BaseException:
        store.__exit__()
        raise

    return store


def refuse_missing_store(location: Location) -> None:
    """Raise StateConflict if git knows a store with entries. Call it where there is no store."""
    anchor = read_anchor(location.git_dir)
    if anchor:
        kept = ChainHeadsFile(location, anchor.store).read()
        _refuse_known_entries(location, anchor, kept)


def _refuse_known_entries(
    location: Location, anchor: Anchor | None, kept: RecordedHeads | None
) -> None:
    counts = [
        anchor.count if anchor else 0,
        *(head.entries for head in (kept.confirmed if kept else ())),
    ]

    if max(counts):
        raise StateConflict(
            f"the store {location.store_path} is missing; it contained {max(counts)} entries",
            "restore .phasegate; or, to start a new journal on purpose: git update-ref -d"
            f" {ANCHOR_REF}",
        )


def _create_store_with_heads(location: Location, new_store_id: str, schema: Schema) -> None:
    """Create the anchor, then the chain heads, then the store.

    In this order, a crash leaves nothing that claims to have entries.
    """
    anchor = read_anchor(location.git_dir)
    if anchor:
        store_id = anchor.store
    else:
        store_id = require_slug(new_store_id, "store id")

    heads = ChainHeadsFile(location, store_id)
    kept = heads.read()
    _refuse_known_entries(location, anchor, kept)

    start = ChainHead(0, chain_origin_hash(store_id))
    if anchor is None:
        write_anchor(location.git_dir, Anchor(store_id, 0, start.hash))
    if kept is None:
        heads.create(start, adopted=False)

    create_store(location.store_path, store_id, schema)
