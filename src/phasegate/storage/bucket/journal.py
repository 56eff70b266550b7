"""The journal itself in a bucket, for machines that share no disk: a numbered log a feature, each with its own chain.

    journal/{feature}/{number}      one step: its events, in the order in which they happened
    heads/{number}                  after a step or more: where the journals that moved end now

A step is one object that is made once, so it is there as a whole or not at all, and one writer alone takes it. What is
asked of the record is answered from a copy here, a store in memory or in a file, which follows the logs: a feature's
own journal at each question, and every few seconds those that the heads name. So a look costs as much as what is new,
however many features there are. What another has recorded within a step that goes on is seen within a minute.
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
from typing import Any

import msgspec

from phasegate.core.audit.chain import Head, encode, origin
from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import EnvironmentUnavailable, ForeignHistory, MovedOn, StateConflict
from phasegate.files.durable_write import make_folder
from phasegate.storage.bucket.client import Bucket
from phasegate.storage.bucket.numbered_log import KeptPage, NumberedLog
from phasegate.storage.location import Location
from phasegate.storage.lock import repository_lock
from phasegate.storage.record import WritableRecord
from phasegate.storage.row_events import row_of
from phasegate.storage.rows import Event, Recorded
from phasegate.storage.schema import SCHEMA, connect, create_store
from phasegate.storage.store import REPOSITORY, set_row

JOURNAL, HEADS = "journal", "heads"
OTHERS_EVERY_S, ALL_EVERY_S = 2.0, 60.0
_PART_OF_TIME = 20  # of all time, at most this part goes into looking at the journals of others
_AT_ONCE = 16  # journals that are read
_COPY = "bucket"  # the id of a store that is a copy
_END, _HEADED, _HEADS = "end ", "headed ", "heads"  # in `meta`: how far each log was read, and what heads say of it
_AT_REST = ("gate-passed", "blocked", "completed", "cancelled")  # stages of a feature
_OF_NO_FEATURE = "-"  # as a folder; no slug is spelt so
_CHAIN = "phasegate feature journal 1"
JournalEnds = dict[str, tuple[int, str]]  # where each journal ended: how many pages, and the hash of the last


class JournalStep(msgspec.Struct, frozen=True):
    """One step of a feature: when it was taken, the number of its first event, and each event's kind and payload."""

    ts: str
    first: int
    events: tuple[tuple[str, str], ...]


def journal_log(bucket: Bucket, feature: str) -> NumberedLog:
    """The journal of a feature in a bucket; no page of another feature's fits into it."""
    return NumberedLog(bucket, f"{JOURNAL}/{feature or _OF_NO_FEATURE}", origin(f"{_CHAIN} {feature}"))


def heads_log(bucket: Bucket) -> NumberedLog:
    return NumberedLog(bucket, HEADS, origin(f"{_CHAIN} heads"))


def feature_of(folder: str) -> str:
    return REPOSITORY if folder == _OF_NO_FEATURE else folder


class _Due:
    """When the journals of others are to be looked at again: one for all records of a process that share a copy."""

    others_s = all_s = 0.0


_DUE: dict[Path, _Due] = {}  # by the file of the copy: a worker opens a record for each step


class BucketRecord(WritableRecord):
    """Fulfils `ports.RunRecord`; threads may share it. Its bucket is a patient one: no record goes on without it."""

    def __init__(self, bucket: Bucket, location: Location, new_id: Callable[[], str], kept: Path | None = None) -> None:
        """`kept`: a file for the copy, which all processes of this machine share; else it is in memory."""
        super().__init__(_copy_in(kept), location)
        self._bucket, self._new_id = bucket, new_id
        self._mutex = RLock()
        if kept and self._connection.execute("SELECT 1 FROM event LIMIT 1").fetchone() is None:
            _DUE.pop(kept, None)  # an empty copy, perhaps of one that was damaged, is filled at once
        self._due = _DUE.setdefault(kept, _Due()) if kept else _Due()
        self.foreign: dict[str, str] = {}  # features whose journal cannot be followed any more, and why
        self.before_step: Callable[[], None] = lambda: None  # must be done before a step is recorded
        if kept:
            self._refuse_another_bucket(kept)

    def _refuse_another_bucket(self, kept: Path) -> None:
        """The last head that was seen must be there still: else the bucket was put back, or made anew."""
        end = self._head_end()
        found = self._bucket.get(f"{HEADS}/{end.entries:010}") if end.entries else None
        if end.entries and (found is None or sha256(found.data).hexdigest() != end.hash):
            raise StateConflict(
                f"{self._bucket.address} does not hold head {end.entries}, which was seen there before",
                f"if the bucket was made anew, remove {kept.parent}; else see: phasegate audit verify --remote",
            )

    # --- writing

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[Event]) -> int:
        """Append events as one page. An answer that was lost is asked for with the same bytes, never with others."""
        if feature != REPOSITORY:
            require_slug(feature)
        for event in events:
            row_of(feature, event.kind, event.payload)
        self.before_step()
        texts = tuple((event.kind, event.payload.decode()) for event in events)
        body, by = msgspec.json.encode(JournalStep(ts, expected_seq + 1, texts)), self._new_id()
        with self._mutex:
            if self._seq(feature) != expected_seq or not events:
                self._follow(feature)
            if (seq := self._seq(feature)) != expected_seq:
                raise MovedOn(f"feature {feature} is at step {seq}, not {expected_seq}: another process took a step")
            if events:
                kept = journal_log(self._bucket, feature).append(self._end(feature), by, body)
                self._take_in(feature, kept)
                if kept.page.by != by:
                    raise MovedOn(f"feature {feature}: another process took step {expected_seq + 1}")
        return expected_seq + len(events)

    def append_now(self, feature: str, ts: str, events: Sequence[Event]) -> int:
        """Append events that do not depend on what the feature's last step was."""
        while True:
            try:
                return self.append(feature, self.seq(feature), ts, events)
            except MovedOn:
                continue

    def anchor(self) -> None:
        """Put down where the journals that moved end now, so that one that is cut off or written anew can be found."""
        with self._mutex:
            self._follow_heads()
            moved = self._ahead(_END, _HEADED)
            by = self._new_id()
            while moved:
                kept = heads_log(self._bucket).append(self._head_end(), by, msgspec.json.encode(moved))
                self._take_heads(kept)
                if kept.page.by == by:
                    return

    # --- reading

    def seq(self, feature: str) -> int:
        with self._mutex:
            self._follow(feature)
            return self._seq(feature)

    def events(self, feature: str, after_seq: int = 0) -> Iterator[Recorded]:
        with self._mutex:
            self._follow(feature)
            return iter([*super().events(feature, after_seq)])

    def head(self) -> Head:
        """A hash over the ends of all journals that are known here."""
        with self._mutex:
            ends = sorted((feature, end[1]) for feature, end in self._ends(_END).items())
            digest = sha256(encode(text.encode() for end in ends for text in end)).hexdigest()
            pages = sum(end[0] for end in self._ends(_END).values())
            return Head(pages, digest, str(self._bucket.address))

    def follow_all(self) -> None:
        """Take in what is new in every journal, whether or not a head tells of it."""
        self._follow_those(lambda _: True)

    def _follow_those(self, wanted: Callable[[str], bool]) -> None:
        with self._mutex:
            began = monotonic()
            self._due.others_s = self._due.all_s = began + ALL_EVERY_S  # first: following asks again
            self._follow_heads()
            self._follow_each(self._ahead(_HEADED, _END))
            self._follow_each(filter(wanted, map(feature_of, self._bucket.folders(JOURNAL))))
            self._due.others_s = began + max(OTHERS_EVERY_S, _PART_OF_TIME * (monotonic() - began))

    def _is_under_way(self, feature: str) -> bool:
        """Whether a worker may be at it. Else it moves by an order, and then a head tells of it."""
        row = self._connection.execute("SELECT stage FROM workflow WHERE feature = ?", (feature,)).fetchone()
        return row is None or row[0] not in _AT_REST

    def _query(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with self._mutex:
            if (began := monotonic()) >= self._due.all_s:
                self._follow_those(self._is_under_way)
            elif began >= self._due.others_s:
                self._due.others_s = began + OTHERS_EVERY_S
                self._follow_heads()
                self._follow_each(self._ahead(_HEADED, _END))
                self._due.others_s = began + max(OTHERS_EVERY_S, _PART_OF_TIME * (monotonic() - began))
            return iter([*super()._query(query, *values)])

    def _follow_each(self, features: Iterable[str]) -> None:
        """Take in what is new in these. One that holds a foreign history stops only those who ask for it."""

        def read(name: str, at: Head) -> list[KeptPage] | ForeignHistory:
            try:
                return [*self._behind(name, at)]
            except ForeignHistory as error:
                return error

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            ends = [(name, self._end(name)) for name in features]
            for (name, _), pages in zip(ends, threads.map(lambda one: read(*one), ends), strict=True):
                try:
                    if isinstance(pages, ForeignHistory):
                        raise pages
                    self._take_in(name, *pages)
                    self.foreign.pop(name, None)
                except ForeignHistory as error:
                    self.foreign[name] = error.message

    def _follow(self, feature: str) -> None:
        """Take in what others have appended to a feature's journal."""
        self._take_in(feature, *self._behind(feature, self._end(feature)))

    def _behind(self, feature: str, at: Head) -> Iterator[KeptPage]:
        log = journal_log(self._bucket, feature)
        while (kept := log.page(at)) is not None:
            yield kept
            at = kept.head

    def _follow_heads(self) -> None:
        """Take in the heads that are new. What they tell of is not read yet."""
        while (kept := heads_log(self._bucket).page(self._head_end())) is not None:
            self._take_heads(kept)

    def _take_heads(self, kept: KeptPage) -> None:
        with self._changing():
            for name, (number, digest) in kept.read(JournalEnds).items():
                self._note(_HEADED + name, number, digest)
            self._note(_HEADS, kept.head.entries, kept.head.hash)

    # --- the copy

    def _end(self, feature: str) -> Head:
        start = journal_log(self._bucket, feature).start
        return self._noted(_END + feature, start)

    def _head_end(self) -> Head:
        return self._noted(_HEADS, heads_log(self._bucket).start)

    def _noted(self, name: str, start: Head) -> Head:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return start if row is None else Head(*_number_and_hash(row[0]), start.kept_in)

    def _note(self, name: str, number: int, digest: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, f"{number} {digest}"))

    def _ends(self, prefix: str) -> JournalEnds:
        rows = self._connection.execute(
            "SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
        )
        return {name.removeprefix(prefix): _number_and_hash(value) for name, value in rows}

    def _ahead(self, this: str, than: str) -> JournalEnds:
        """The journals of which one says more than the other: what was read of them, or what heads tell."""
        rows = self._connection.execute(
            "SELECT substr(a.name, ?), a.value, b.value FROM meta a"
            " LEFT JOIN meta b ON b.name = ? || substr(a.name, ?)"
            " WHERE a.name >= ? AND a.name < ? AND a.value IS NOT b.value",
            (len(this) + 1, than, len(this) + 1, this, this + "\U0010ffff"),
        )
        found = ((name, _number_and_hash(end), _number_and_hash(other or "0 ")) for name, end, other in rows)
        return {name: end for name, end, other in found if end[0] > other[0]}

    def _seq(self, feature: str) -> int:
        query = "SELECT coalesce(max(seq), 0) FROM event WHERE feature = ?"
        return int(self._connection.execute(query, (feature,)).fetchone()[0])

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One change of the copy, whole or not at all: other processes read it, and take in the same pages."""
        with self._mutex, self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _take_in(self, feature: str, *pages: KeptPage) -> None:
        if not pages:
            return
        with self._changing():
            for kept in pages:
                if kept.page.n > self._end(feature).entries:  # else another process took it in
                    self._insert(feature, kept)

    def _insert(self, feature: str, kept: KeptPage) -> None:
        step, seq = kept.read(JournalStep), self._seq(feature)
        if step.first != seq + 1:
            raise ForeignHistory(f"the journal of {feature} in {self._bucket.address} lacks event {seq + 1}")
        (position,) = self._connection.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()
        events = [(kind, text.encode()) for kind, text in step.events]
        try:
            rows = [row_of(feature, *event) for event in events]
        except ValueError as error:
            raise ForeignHistory(f"page {kept.page.n} of the journal of {feature}: {error}") from error
        for number, event in enumerate(events):
            values = (position + number + 1, feature, step.first + number, step.ts, *event, kept.head.hash)
            self._connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        for row in rows:
            set_row(self._connection, row)
        self._note(_END + feature, kept.head.entries, kept.head.hash)


def _number_and_hash(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(" ")
    return int(number), digest


def _copy_in(path: Path | None) -> sqlite3.Connection:
    """The store that a copy is kept in. What is damaged is made anew: the bucket has it all."""
    if path is None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(SCHEMA.create)
        connection.execute("INSERT INTO meta VALUES ('store_id', ?)", (_COPY,))
        return connection
    make_folder(path.parent)
    with repository_lock(path.parent, "copy"):
        try:
            connection = connect(path, write=True)
        except (StateConflict, EnvironmentUnavailable):
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
            create_store(path, _COPY)
            connection = connect(path, write=True)
    connection.execute("PRAGMA synchronous = NORMAL")  # what a power failure takes is read again
    return connection
