"""Read the store: the journal, and the state of packages and jobs.

This module imports little, because `status` runs often.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Self, TypeVar

from phasegate.core.paths.artifact_path import find_slug_problem
from phasegate.core.workflow.spending import Spending
from phasegate.errors import StateConflict
from phasegate.storage.location import Location
from phasegate.storage.rows import (
    TABLE_NAMES,
    GateRow,
    JobRow,
    PackageRow,
    RecordedEvent,
    TrailSeal,
    WorkflowRow,
)
from phasegate.storage.schema import (
    SCHEMA,
    Schema,
    connect_store,
    damaged_store_error,
    explain_sqlite_error,
)

TYPE_CHECKING = False
# Only verification needs the chain, which loads OpenSSL
if TYPE_CHECKING:
    from phasegate.core.audit.chain import ChainHead, ChainLink

_EVENT_COLUMNS = "position, feature, seq, ts, kind, payload"
R = TypeVar("R", PackageRow, JobRow, TrailSeal, WorkflowRow, GateRow)


def open_store_reader(location: Location, schema: Schema = SCHEMA) -> StoreReader | None:
    """Open the repository's store for reading, or return None if there is none."""
    if not os.path.lexists(location.store_path):
        return None
    if location.fleet_copy is None and location.data_folder.is_symlink():
        raise StateConflict(f"{location.data_folder} is not a folder", "move the link aside")
    return StoreReader(connect_store(location.store_path, write=False, schema=schema), location)


class StoreReader:
    """A store that is open for reading."""

    def __init__(self, connection: sqlite3.Connection, location: Location) -> None:
        self._connection = connection
        # The repository that this record belongs to
        self.location = location
        self.store_id = str(
            connection.execute("SELECT value FROM meta WHERE name = 'store_id'").fetchone()[0]
        )
        # The id becomes part of a path
        if find_slug_problem(self.store_id):
            raise damaged_store_error(location.store_path, "its id was changed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def last_seq(self, feature: str) -> int:
        """Return the number of a feature's last event, or 0 if it has none."""
        rows = self._query("SELECT coalesce(max(seq), 0) FROM event WHERE feature = ?", feature)
        return int(next(iter(rows))[0])

    def last_seqs(self) -> dict[str, int]:
        """Return the number of every feature's last event."""
        query = "SELECT feature, max(seq) FROM event WHERE feature != '' GROUP BY feature"
        return {str(feature): int(last) for feature, last in self._query(query)}

    def chain_head(self) -> ChainHead:
        """Return the end of the chain."""
        from phasegate.core.audit.chain import ChainHead, chain_origin_hash

        for position, digest in self._query(
            "SELECT position, hash FROM event ORDER BY position DESC LIMIT 1"
        ):
            return ChainHead(position, digest, str(self.location.store_path))

        return ChainHead(0, chain_origin_hash(self.store_id), str(self.location.store_path))

    def features(self) -> list[str]:
        """Return the features that have events, the one with the newest event first."""
        query = (
            "SELECT feature FROM event WHERE feature != '' GROUP BY feature ORDER BY max(position)"
            " DESC"
        )
        return [feature for (feature,) in self._query(query)]

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]:
        """Yield a feature's events in order, after `after_seq`."""
        return (
            RecordedEvent(*row)
            for row in self._query_events(
                "WHERE feature = ? AND seq > ? ORDER BY seq", feature, after_seq
            )
        )

    def events_of_kinds(self, feature: str, *kinds: str) -> Iterator[RecordedEvent]:
        """Yield a feature's events of some kinds, in order."""
        marks = ", ".join("?" * len(kinds))
        rows = self._query_events(
            f"WHERE feature = ? AND kind IN ({marks}) ORDER BY seq", feature, *kinds
        )
        return (RecordedEvent(*row) for row in rows)

    def events_since(self, position: int = 0) -> Iterator[RecordedEvent]:
        """Yield all events of the repository in order, after `position`."""
        return (
            RecordedEvent(*row)
            for row in self._query_events("WHERE position > ? ORDER BY position", position)
        )

    def events_before(
        self, position: int, limit: int, feature: str | None = None, kind: str | None = None
    ) -> list[RecordedEvent]:
        """Return up to `limit` events before a position, newest first.

        With `feature` or `kind`, only those of one feature or of one kind.
        """
        wanted = {"feature": feature, "kind": kind}
        filters = {name: value for name, value in wanted.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in filters)
        rows = self._query_events(
            f"WHERE position < ?{where} ORDER BY position DESC LIMIT ?",
            position,
            *filters.values(),
            limit,
        )
        return [RecordedEvent(*row) for row in rows]

    def features_changed_since(self, position: int) -> dict[str, int]:
        """Return the features with events after a position, each with the position of its last
        event.
        """
        query = "SELECT feature, max(position) FROM event WHERE position > ? GROUP BY feature"
        return {str(feature): int(last) for feature, last in self._query(query, position)}

    def data_version(self) -> int:
        """Return a number that changes when another process writes.

        The call takes microseconds.
        """
        return int(next(iter(self._query("PRAGMA data_version")))[0])

    def chain_links(self, after: int = 0, limit: int = -1) -> Iterator[ChainLink]:
        """Yield the stored links of the chain after entry `after`; with `limit`, only so many."""
        from phasegate.core.audit.chain import ChainEntry, ChainLink

        for position, feature, seq, ts, kind, payload, digest in self._query_events(
            "WHERE position > ? ORDER BY position LIMIT ?", after, limit, extra_columns=", hash"
        ):
            if isinstance(payload, bytes):
                raw = payload
            else:
                raw = str(payload).encode()

            yield ChainLink(
                ChainEntry(
                    position=position,
                    feature=str(feature),
                    seq=seq,
                    ts=str(ts),
                    kind=str(kind),
                    payload=raw,
                ),
                str(digest),
            )

    def packages(self, feature: str) -> list[PackageRow]:
        """Return the packages of a feature by id."""
        return self._query_rows(PackageRow, "WHERE feature = ? ORDER BY id", feature)

    def jobs(self, feature: str) -> list[JobRow]:
        """Return the jobs of a feature in start order."""
        return self._query_rows(JobRow, "WHERE feature = ? ORDER BY started, id", feature)

    def workflows(self) -> list[WorkflowRow]:
        """Return every feature's workflow, the most recently changed first."""
        by_feature = {row.feature: row for row in self._query_rows(WorkflowRow, "")}
        return [by_feature[feature] for feature in self.features() if feature in by_feature]

    def gates(self, feature: str) -> list[GateRow]:
        """Return the gate checks of a feature in order."""
        return self._query_rows(GateRow, "WHERE feature = ? ORDER BY number", feature)

    def total_spent(self, feature: str | None = None) -> Spending:
        """Return the total spending of a feature's jobs, or of all jobs."""
        where, values = ("", ()) if feature is None else (" WHERE feature = ?", (feature,))
        query = f"SELECT coalesce(sum(tokens), 0), coalesce(sum(cost_usd), 0.0) FROM job{where}"  # noqa: S608 - our own names only
        return Spending(*next(iter(self._query(query, *values))))

    def usage_totals(self) -> list[tuple[str, str, str, str, int, int, float, float]]:
        """Return the total jobs, tokens, dollars and seconds by feature, agent, role and day."""
        lasted = (
            "sum(CASE WHEN ended = '' THEN 0 ELSE (julianday(ended) - julianday(started)) * 86400"
            " END)"
        )
        columns = (
            "feature, agent, phase, substr(started, 1, 10), count(*), sum(tokens), sum(cost_usd)"
        )
        query = f"SELECT {columns}, {lasted} FROM job GROUP BY 1, 2, 3, 4"  # noqa: S608 - constants
        return [*self._query(query)]

    def running_jobs(self) -> list[JobRow]:
        """Return the jobs without a recorded end, in start order."""
        return self._query_rows(JobRow, "WHERE ended = '' ORDER BY started, id")

    def spent_by_package(self, feature: str) -> dict[str, Spending]:
        """Return the spending of each package of a feature."""
        query = "SELECT wp, sum(tokens), sum(cost_usd) FROM job WHERE feature = ? GROUP BY wp"
        return {
            str(wp): Spending(tokens, cost_usd)
            for wp, tokens, cost_usd in self._query(query, feature)
        }

    def rate_limited_agents(self, now_s: float) -> dict[str, float]:
        """Return the rate-limited agents, each with its reset time."""
        query = "SELECT agent, max(retry_at_s) FROM job WHERE retry_at_s > ? GROUP BY agent"
        return {str(agent): float(until_s) for agent, until_s in self._query(query, now_s)}

    def count_consecutive_limits(self, agent: str) -> int:
        """Count how many of an agent's last jobs in a row ended at a rate limit, up to ten."""
        query = (
            "SELECT retry_at_s FROM job WHERE agent = ? AND ended <> '' ORDER BY ended DESC"
            " LIMIT 10"
        )
        return sum(1 for _ in takewhile(lambda row: row[0] > 0, self._query(query, agent)))

    def chain_hash_at(self, position: int) -> str | None:
        """Return the chain hash after `position` entries, or None if the chain is shorter."""
        if position == 0:
            from phasegate.core.audit.chain import chain_origin_hash

            return chain_origin_hash(self.store_id)

        found = self._query("SELECT hash FROM event WHERE position = ?", position)
        return next((str(digest) for (digest,) in found), None)

    def is_link_intact(self, position: int) -> bool:
        """Return True if an entry still has the hash that continues the chain before it."""
        from phasegate.core.audit.chain import compute_entry_hash

        link = next(self.chain_links(position - 1, limit=1), None)
        before = self.chain_hash_at(position - 1)
        if link is None or before is None or link.entry.position != position:
            return False
        return compute_entry_hash(before, link.entry) == link.hash

    def find_job(self, id_: str) -> JobRow | None:
        """Return a job by its id."""
        return next(iter(self._query_rows(JobRow, "WHERE id = ?", id_)), None)

    def find_seal(self, job: str) -> TrailSeal | None:
        """Return the seal of a job's trail, or None if the trail was never closed."""
        return next(iter(self._query_rows(TrailSeal, "WHERE job = ?", job)), None)

    def seals(self) -> list[TrailSeal]:
        """Return the seals of all closed trails."""
        return self._query_rows(TrailSeal, "ORDER BY feature, job")

    def all_rows(self, type_: type[R]) -> list[R]:
        """Return every row of a table, for verification."""
        return self._query_rows(type_, "")

    def begin_snapshot(self) -> ChainHead:
        """Start a read snapshot, which hides later writes; return the end of the chain."""
        with self._translate_errors():
            self._connection.execute("BEGIN")
        return self.chain_head()

    def integrity_errors(self) -> list[str]:
        """Return the errors that SQLite's integrity check reports about pages and indexes."""
        found = [str(text) for (text,) in self._query("PRAGMA integrity_check(3)")]
        if found == ["ok"]:
            return []
        return found

    def _query_events(
        self, where: str, *values: object, extra_columns: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        return self._query(f"SELECT {_EVENT_COLUMNS}{extra_columns} FROM event {where}", *values)  # noqa: S608 - our own names only

    def _query_rows(self, type_: type[R], where: str, *values: object) -> list[R]:
        columns = ", ".join(type_._fields)
        query = f"SELECT {columns} FROM {TABLE_NAMES[type_]} {where}"  # noqa: S608 - our own names only
        return [type_._make(row) for row in self._query(query, *values)]

    def _query(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with self._translate_errors():
            yield from self._connection.execute(query, values)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise explain_sqlite_error(self.location.store_path, error) from error
