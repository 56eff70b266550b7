"""The journal itself in a bucket, for machines that share no disk: a numbered log a feature, each with its own chain.

    journal/{feature}/{number}      one step: its events, in the order in which they happened
    heads/{number}                  now and then: where each journal ended

A step is one object that is made once, so it is there as a whole or not at all, and one writer alone takes it. What is
asked of the record is answered from a copy in memory, which follows the logs: a feature's own journal at each question,
those of the others every few seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from threading import RLock
from time import monotonic
from typing import Any, TypeVar

import msgspec

from phasegate.errors import MovedOn, StateConflict
from phasegate.record.bucket import Bucket
from phasegate.record.location import Location
from phasegate.record.numbered_log import KeptPage, NumberedLog
from phasegate.record.reader import Reader
from phasegate.record.row_events import row_of
from phasegate.record.rows import Event, Recorded
from phasegate.record.schema import SCHEMA
from phasegate.record.store import REPOSITORY, set_row
from phasegate.rules.artifact_path import require_slug
from phasegate.rules.chain import Head, encode, origin
from phasegate.typed import read_json

JOURNAL, HEADS = "journal", "heads"
OTHERS_EVERY_S = 2.0
_PART_OF_TIME = 20  # of all time, at most this part goes into looking at the journals of others
_OF_NO_FEATURE = "-"  # as a folder; no slug is spelt so
_CHAIN = "phasegate feature journal 1"
T = TypeVar("T")


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


def read_step(kept: KeptPage) -> JournalStep:
    """The step that a page of a journal is."""
    return _read(kept, JournalStep)


def read_heads(kept: KeptPage) -> dict[str, tuple[int, str]]:
    """Where each journal ended: how many pages, and the hash of the last."""
    return _read(kept, dict[str, tuple[int, str]])


def _read(kept: KeptPage, type_: type[T]) -> T:
    try:
        return read_json(bytes(kept.page.body), type_)
    except msgspec.MsgspecError as error:
        raise StateConflict(f"page {kept.page.n} was not written by Phasegate: {error}") from error


class BucketRecord(Reader):
    """Fulfils `ports.RunRecord`; threads may share it. Its bucket is a patient one: no record goes on without it."""

    def __init__(
        self,
        bucket: Bucket,
        location: Location,
        new_id: Callable[[], str],
    ) -> None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(SCHEMA.create)
        connection.execute("INSERT INTO meta VALUES ('store_id', 'bucket')")
        super().__init__(connection, location)
        self._bucket, self._new_id = bucket, new_id
        self._mutex = RLock()
        self._ends: dict[str, Head] = {}
        self._others_due_s = 0.0

    # --- writing

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[Event]) -> int:
        """Append events as one page. An answer that was lost is asked for with the same bytes, never with others."""
        if feature != REPOSITORY:
            require_slug(feature)
        for event in events:
            row_of(feature, event.kind, event.payload)
        texts = tuple((event.kind, event.payload.decode()) for event in events)
        body, by = msgspec.json.encode(JournalStep(ts, expected_seq + 1, texts)), self._new_id()
        with self._mutex:
            if self._seq(feature) != expected_seq or not events:
                self._follow(feature)
            if (seq := self._seq(feature)) != expected_seq:
                raise MovedOn(f"feature {feature} is at step {seq}, not {expected_seq}: another process took a step")
            if events:
                log, at = self._log(feature)
                kept = log.append(at, by, body)
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
        """Put down where each journal ends, so that one that is cut off or written anew can be found."""
        with self._mutex:
            ends = {feature: (head.entries, head.hash) for feature, head in sorted(self._ends.items())}
            log, by = heads_log(self._bucket), self._new_id()
            last = log.last()
            at = last.head if last else log.start
            while (kept := log.append(at, by, msgspec.json.encode(ends))).page.by != by:
                at = kept.head

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
            ends = sorted((feature, head.hash) for feature, head in self._ends.items())
            digest = sha256(encode(text.encode() for end in ends for text in end)).hexdigest()
            return Head(sum(head.entries for head in self._ends.values()), digest, str(self._bucket.address))

    def _query(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with self._mutex:
            self._follow_others()
            return iter([*super()._query(query, *values)])

    def _follow_others(self) -> None:
        if (began := monotonic()) >= self._others_due_s:
            self._others_due_s = began + OTHERS_EVERY_S  # first: following asks again
            for folder in self._bucket.folders(JOURNAL):
                self._follow(feature_of(folder))
            self._others_due_s = began + max(OTHERS_EVERY_S, _PART_OF_TIME * (monotonic() - began))

    def _follow(self, feature: str) -> None:
        """Take in what others have appended to a feature's journal."""
        while True:
            log, at = self._log(feature)
            kept = log.page(at)
            if kept is None:
                return
            self._take_in(feature, kept)

    def _log(self, feature: str) -> tuple[NumberedLog, Head]:
        log = journal_log(self._bucket, feature)
        return log, self._ends.get(feature, log.start)

    def _seq(self, feature: str) -> int:
        query = "SELECT coalesce(max(seq), 0) FROM event WHERE feature = ?"
        return int(self._connection.execute(query, (feature,)).fetchone()[0])

    def _take_in(self, feature: str, kept: KeptPage) -> None:
        step, seq = read_step(kept), self._seq(feature)
        if step.first != seq + 1:
            raise StateConflict(f"the journal of {feature} in {self._bucket.address} lacks event {seq + 1}")
        (position,) = self._connection.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()
        events = [(kind, text.encode()) for kind, text in step.events]
        try:
            rows = [row_of(feature, *event) for event in events]
        except ValueError as error:
            raise StateConflict(f"page {kept.page.n} of the journal of {feature}: {error}") from error
        for number, event in enumerate(events):
            values = (position + number + 1, feature, step.first + number, step.ts, *event, kept.head.hash)
            self._connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        for row in rows:
            set_row(self._connection, row)
        self._ends[feature] = kept.head
