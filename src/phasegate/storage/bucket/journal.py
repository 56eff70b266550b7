"""A journal that is stored in a bucket, for machines without a shared disk.

Each feature has a numbered log with its own chain.

    journal/{feature}/{number}      one step: its events, with their hashes in the feature's chain
    heads/{number}                  after one or more steps: the new ends of the changed journals

A step is one object that is created once, so it exists completely or not at all, and only one
writer succeeds. Queries are answered from a local copy, a store in memory or in a
file, which follows the logs: a feature's own journal at each query, and every few seconds those
that the heads list. So a poll costs only as much as there is new data, whatever the number of
features. What another process records within a running step is visible within a minute.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from phasegate.core.audit.chain import (
    ChainHead,
    chain_origin_hash,
    encode_fields,
    make_links,
)
from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import DivergedHistory, EnvironmentUnavailable, MovedOn, StateConflict
from phasegate.files.durable_write import make_folder
from phasegate.storage.bucket.client import Bucket, BucketAddress
from phasegate.storage.bucket.numbered_log import (
    EntryPage,
    NumberedLog,
    StoredPage,
    decode_entries,
    encode_entry,
)
from phasegate.storage.journal_store import NO_FEATURE, upsert_row
from phasegate.storage.location import Location
from phasegate.storage.lock import named_lock
from phasegate.storage.record import WritableStore
from phasegate.storage.row_events import decode_row
from phasegate.storage.rows import NewEvent, RecordedEvent
from phasegate.storage.schema import SCHEMA, connect_store, create_store

JOURNAL_FOLDER = "journal"
HEADS_FOLDER = "heads"
# One object for each number of a feature that was given out
NUMBERS_FOLDER = "numbers"
HEADS_POLL_INTERVAL_S = 2.0
FULL_POLL_INTERVAL_S = 60.0
# Polling the journals of others takes at most 1 / this factor of the time
_POLL_PAUSE_FACTOR = 20
# Journals that are read at the same time
_MAX_CONCURRENT_READS = 16
# The store id of a local copy
_COPY_STORE_ID = "bucket"
# Keys in `meta`: how far each log was read, and its end according to the heads
_READ_END_PREFIX = "end "
_HEAD_END_PREFIX = "headed "
_HEADS_END_KEY = "heads"
# Stages of a feature
_ENDED_STAGES = ("completed", "cancelled")
_IDLE_STAGES = ("gate-passed", "blocked", *_ENDED_STAGES)
# Folder of events without a feature; not a valid slug
_NO_FEATURE_FOLDER = "-"
_CHAIN_NAME = "phasegate feature journal 1"
# The end of each journal: number of pages, and hash of the last one
JournalEnds = dict[str, tuple[int, str]]


def journal_log(bucket: Bucket, feature: str) -> NumberedLog:
    """Return the journal of a feature in a bucket.

    A page of another feature is refused, because its hash does not match.
    """
    return NumberedLog(
        bucket,
        f"{JOURNAL_FOLDER}/{feature or _NO_FEATURE_FOLDER}",
        chain_origin_hash(f"{_CHAIN_NAME} {feature}"),
    )


def heads_log(bucket: Bucket) -> NumberedLog:
    return NumberedLog(bucket, HEADS_FOLDER, chain_origin_hash(f"{_CHAIN_NAME} heads"))


def feature_from_folder(folder: str) -> str:
    if folder == _NO_FEATURE_FOLDER:
        return NO_FEATURE
    return folder


class LastReadPages(NamedTuple):
    """The last pages that this machine has read: of the heads, and of each journal."""

    heads: tuple[int, str]
    journals: JournalEnds


def read_seen_ends(copy_path: Path) -> LastReadPages | None:
    """Return the ends up to which a local copy has read its bucket, or None if there is no copy."""
    if not copy_path.is_file():
        return None

    connection = connect_store(copy_path, write=False)
    try:
        ends = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    finally:
        connection.close()

    journals = {
        name.removeprefix(_READ_END_PREFIX): _parse_end(value)
        for name, value in ends.items()
        if name.startswith(_READ_END_PREFIX)
    }
    return LastReadPages(_parse_end(ends.get(_HEADS_END_KEY, "0 ")), journals)


class _PollSchedule:
    """When to poll the journals of other machines next.

    All records of a process that use the same copy share one schedule.
    """

    next_heads_poll_s = next_full_poll_s = 0.0
    # Until when the last seen head counts as still being there, and in which bucket
    next_check_s = 0.0
    checked_address: BucketAddress | None = None


# By path of the copy, because a worker opens a new record for each step
_POLL_SCHEDULES: dict[Path, _PollSchedule] = {}


class BucketStore(WritableStore):
    """Implements `ports.RunRecord`. Thread-safe.

    The bucket must retry requests, because nothing can be recorded without it.
    """

    def __init__(
        self,
        bucket: Bucket,
        location: Location,
        new_id: Callable[[], str],
        copy_path: Path | None = None,
    ) -> None:
        """Open the record.

        `copy_path` is a local copy that all processes of this machine share. Without it, the copy
        is kept in memory.
        """
        super().__init__(_open_copy(copy_path), location)
        self._bucket = bucket
        self._new_id = new_id
        self._mutex = RLock()
        if copy_path and self._connection.execute("SELECT 1 FROM event LIMIT 1").fetchone() is None:
            # A new copy, perhaps after the old one was damaged, is filled immediately
            _POLL_SCHEDULES.pop(copy_path, None)

        if copy_path:
            self._schedule = _POLL_SCHEDULES.setdefault(copy_path, _PollSchedule())
        else:
            self._schedule = _PollSchedule()

        # Features whose journal can no longer be followed, with the reason
        self.foreign_histories: dict[str, str] = {}
        # Called before a step is recorded
        self.before_append: Callable[[], None] = lambda: None
        if copy_path:
            self._check_same_bucket(copy_path)

    def _check_same_bucket(self, copy_path: Path) -> None:
        """Check that the bucket still has the last chain head that was seen.

        If it does not, the bucket was recreated or restored from a backup. A worker, which opens
        the record for each step, checks it once a minute.
        """
        schedule = self._schedule
        if schedule.checked_address == self._bucket.address and monotonic() < schedule.next_check_s:
            return

        end = self._heads_end()
        if end.entries:
            found = self._bucket.get(f"{HEADS_FOLDER}/{end.entries:010}")
        else:
            found = None

        if end.entries and (found is None or sha256(found.data).hexdigest() != end.hash):
            raise StateConflict(
                f"{self._bucket.address} no longer has head {end.entries}, which was seen there"
                " before",
                f"if the bucket was recreated, remove {copy_path.parent}; otherwise run: phasegate"
                " audit verify --remote",
            )

        schedule.checked_address = self._bucket.address
        schedule.next_check_s = monotonic() + FULL_POLL_INTERVAL_S

    # --- writing

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events as one page.

        If a response is lost, the request is repeated with the same bytes.
        """
        if feature != NO_FEATURE:
            require_slug(feature)

        for event in events:
            decode_row(feature, event.kind, event.payload)

        self.before_append()
        by = self._new_id()
        with self._mutex:
            if self._local_last_seq(feature) != expected_seq or not events:
                self._sync_feature(feature)

            if (seq := self._local_last_seq(feature)) != expected_seq:
                raise MovedOn(
                    f"feature {feature} is at step {seq}, not {expected_seq}: another process took"
                    " a step"
                )

            if events:
                links = make_links(self._feature_head(feature), feature, expected_seq, ts, events)
                page = EntryPage(tuple(map(encode_entry, links)))
                kept = journal_log(self._bucket, feature).append(
                    self._journal_end(feature), by, msgspec.json.encode(page)
                )
                self._apply_pages(feature, kept)
                if kept.page.by != by:
                    raise MovedOn(
                        f"feature {feature}: another process took step {expected_seq + 1}"
                    )

        return expected_seq + len(events)

    def reserve_number(self, number: int, slug: str) -> bool:
        """Reserve a number for all machines: an object can be created only once."""
        path = f"{NUMBERS_FOLDER}/{number:06}"
        data = f"{slug} {self._new_id()}".encode()
        if self._bucket.create(path, data):
            return True

        # It is ours if only the response to our request was lost
        found = self._bucket.get(path)
        return found is not None and found.data == data

    def anchor(self) -> None:
        """Write the current end of every changed journal, so that truncation or rewriting is
        detected.
        """
        with self._mutex:
            self._sync_heads()
            moved = self._journals_ahead(_READ_END_PREFIX, _HEAD_END_PREFIX)
            by = self._new_id()

            while moved:
                kept = heads_log(self._bucket).append(
                    self._heads_end(), by, msgspec.json.encode(moved)
                )
                self._apply_heads(kept)
                if kept.page.by == by:
                    return

    # --- reading

    def last_seq(self, feature: str) -> int:
        with self._mutex:
            self._sync_feature(feature)
            return self._local_last_seq(feature)

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]:
        with self._mutex:
            self._sync_feature(feature)
            return iter([*super().events(feature, after_seq)])

    def chain_head(self) -> ChainHead:
        """Return a head whose hash covers the known ends of all journals."""
        with self._mutex:
            ends = sorted(
                (feature, end[1]) for feature, end in self._read_ends(_READ_END_PREFIX).items()
            )
            digest = sha256(
                encode_fields(text.encode() for end in ends for text in end)
            ).hexdigest()
            pages = sum(end[0] for end in self._read_ends(_READ_END_PREFIX).values())
            return ChainHead(pages, digest, str(self._bucket.address))

    def sync_all_features(self) -> None:
        """Apply the new pages of every journal, whether or not a chain head announces them."""
        self._sync_matching_features(lambda _: True)

    def sync_open_features(self) -> None:
        """Apply the new pages of the features that have not ended, and of those in new heads.

        It costs one request for each open feature, however many have ended.
        """
        self._sync_matching_features(self._is_open)

    def _is_open(self, feature: str) -> bool:
        return self._read_stage(feature) not in _ENDED_STAGES

    def _read_stage(self, feature: str) -> str | None:
        row = self._connection.execute(
            "SELECT stage FROM workflow WHERE feature = ?", (feature,)
        ).fetchone()
        return row[0] if row else None

    def _sync_matching_features(self, is_wanted: Callable[[str], bool]) -> None:
        """Download new events of all features that `is_wanted` accepts."""
        with self._mutex:
            began = monotonic()
            # Set first, because the calls below run queries, which would poll again
            self._schedule.next_heads_poll_s = self._schedule.next_full_poll_s = (
                began + FULL_POLL_INTERVAL_S
            )
            self._sync_heads()
            self._sync_features(self._journals_ahead(_HEAD_END_PREFIX, _READ_END_PREFIX))
            self._sync_features(
                filter(
                    is_wanted, map(feature_from_folder, self._bucket.list_folders(JOURNAL_FOLDER))
                )
            )
            self._schedule.next_heads_poll_s = began + max(
                HEADS_POLL_INTERVAL_S, _POLL_PAUSE_FACTOR * (monotonic() - began)
            )

    def _may_be_running(self, feature: str) -> bool:
        """Return True if a worker may currently write to a feature's journal.

        Otherwise only commands of users change it, and a chain head announces those changes.
        """
        return self._read_stage(feature) not in _IDLE_STAGES

    def _query(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Run a query on the local copy, after polling the bucket if that is due."""
        with self._mutex:
            if (began := monotonic()) >= self._schedule.next_full_poll_s:
                self._sync_matching_features(self._may_be_running)
            elif began >= self._schedule.next_heads_poll_s:
                self._schedule.next_heads_poll_s = began + HEADS_POLL_INTERVAL_S
                self._sync_heads()
                self._sync_features(self._journals_ahead(_HEAD_END_PREFIX, _READ_END_PREFIX))
                self._schedule.next_heads_poll_s = began + max(
                    HEADS_POLL_INTERVAL_S, _POLL_PAUSE_FACTOR * (monotonic() - began)
                )

            return iter([*super()._query(query, *values)])

    def _sync_features(self, features: Iterable[str]) -> None:
        """Apply the new pages of these journals.

        A diverged journal is an error only for callers that read it.
        """

        def read(name: str, at: ChainHead) -> list[StoredPage] | DivergedHistory:
            try:
                return [*self._read_pages_after(name, at)]
            except DivergedHistory as error:
                return error

        with ThreadPoolExecutor(_MAX_CONCURRENT_READS) as threads:
            ends = [(name, self._journal_end(name)) for name in features]
            for (name, _), pages in zip(
                ends, threads.map(lambda one: read(*one), ends), strict=True
            ):
                try:
                    if isinstance(pages, DivergedHistory):
                        raise pages

                    self._apply_pages(name, *pages)
                    self.foreign_histories.pop(name, None)
                except DivergedHistory as error:
                    self.foreign_histories[name] = error.message

    def _sync_feature(self, feature: str) -> None:
        """Apply the pages that other machines appended to a feature's journal."""
        self._apply_pages(feature, *self._read_pages_after(feature, self._journal_end(feature)))

    def _read_pages_after(self, feature: str, head: ChainHead) -> Iterator[StoredPage]:
        log = journal_log(self._bucket, feature)
        while (kept := log.page_after(head)) is not None:
            yield kept
            head = kept.head

    def _sync_heads(self) -> None:
        """Apply new chain heads. The journals that they announce are synced later."""
        while (kept := heads_log(self._bucket).page_after(self._heads_end())) is not None:
            self._apply_heads(kept)

    def _apply_heads(self, stored: StoredPage) -> None:
        with self._transaction():
            for name, (number, digest) in stored.decode_body(JournalEnds).items():
                self._write_end(_HEAD_END_PREFIX + name, number, digest)
            self._write_end(_HEADS_END_KEY, stored.head.entries, stored.head.hash)

    # --- the copy

    def _journal_end(self, feature: str) -> ChainHead:
        start = journal_log(self._bucket, feature).origin_head
        return self._read_end(_READ_END_PREFIX + feature, start)

    def _heads_end(self) -> ChainHead:
        return self._read_end(_HEADS_END_KEY, heads_log(self._bucket).origin_head)

    def _read_end(self, name: str, start: ChainHead) -> ChainHead:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            return start
        return ChainHead(*_parse_end(row[0]), start.kept_in)

    def _write_end(self, name: str, number: int, digest: str) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, f"{number} {digest}")
        )

    def _read_ends(self, prefix: str) -> JournalEnds:
        rows = self._connection.execute(
            "SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
        )
        return {name.removeprefix(prefix): _parse_end(value) for name, value in rows}

    def _journals_ahead(self, prefix: str, other_prefix: str) -> JournalEnds:
        """Return the journals that are longer under one prefix than under the other.

        The prefixes select the ends in the local copy, or the ends according to the chain heads.
        """
        rows = self._connection.execute(
            "SELECT substr(a.name, ?), a.value, b.value FROM meta a"
            " LEFT JOIN meta b ON b.name = ? || substr(a.name, ?)"
            " WHERE a.name >= ? AND a.name < ? AND a.value IS NOT b.value",
            (len(prefix) + 1, other_prefix, len(prefix) + 1, prefix, prefix + "\U0010ffff"),
        )

        found = ((name, _parse_end(end), _parse_end(other or "0 ")) for name, end, other in rows)
        return {name: end for name, end, other in found if end[0] > other[0]}

    def _local_last_seq(self, feature: str) -> int:
        return self._feature_head(feature).entries

    def _feature_head(self, feature: str) -> ChainHead:
        """Return the end of a feature's chain in the copy."""
        query = "SELECT seq, hash FROM event WHERE feature = ? ORDER BY seq DESC LIMIT 1"
        row = self._connection.execute(query, (feature,)).fetchone()
        if row is None:
            return journal_log(self._bucket, feature).origin_head
        return ChainHead(*row)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Change the local copy in one transaction.

        Other processes may read the copy and apply the same pages at the same time.
        """
        with self._mutex, self._translate_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

            self._connection.execute("COMMIT")

    def _apply_pages(self, feature: str, *pages: StoredPage) -> None:
        if not pages:
            return

        with self._transaction():
            for kept in pages:
                # Otherwise another process has already applied it
                if kept.page.n > self._journal_end(feature).entries:
                    self._insert_page(feature, kept)

    def _insert_page(self, feature: str, stored: StoredPage) -> None:
        """Insert a downloaded page of events; raise if it does not continue ours."""
        entries = decode_entries(stored).entries
        seq = self._local_last_seq(feature)
        if entries[0].seq != seq + 1:
            raise DivergedHistory(
                f"the journal of {feature} in {self._bucket.address} lacks event {seq + 1}"
            )

        (position,) = self._connection.execute(
            "SELECT coalesce(max(position), 0) FROM event"
        ).fetchone()

        try:
            rows = [decode_row(feature, one.kind, one.payload.encode()) for one in entries]
        except ValueError as error:
            raise DivergedHistory(
                f"page {stored.page.n} of the journal of {feature}: {error}"
            ) from error

        for number, (entry, digest) in enumerate((one.link for one in entries), start=1):
            self._connection.execute(
                "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)",
                (position + number, *entry[1:], digest),
            )

        for row in rows:
            upsert_row(self._connection, row)

        self._write_end(_READ_END_PREFIX + feature, stored.head.entries, stored.head.hash)


def _parse_end(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(" ")
    return int(number), digest


def _open_copy(path: Path | None) -> sqlite3.Connection:
    """Open the local copy. A damaged copy is recreated, because the bucket has all data."""
    if path is None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(SCHEMA.create_sql)
        connection.execute("INSERT INTO meta VALUES ('store_id', ?)", (_COPY_STORE_ID,))
        return connection

    make_folder(path.parent)
    with named_lock(path.parent, "copy"):
        try:
            connection = connect_store(path, write=True)
        except (StateConflict, EnvironmentUnavailable):
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)

            create_store(path, _COPY_STORE_ID)
            connection = connect_store(path, write=True)

    # After a power failure, lost pages are read again
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection
