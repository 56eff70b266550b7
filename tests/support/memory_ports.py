"""The engine's ports in memory: a second implementation, to show that nothing depends on the first."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from threading import Event as Cancelled
from threading import RLock
from typing import TypeVar

from phasegate.agents.spool.requests import SpoolRequest
from phasegate.agents.spool.server import SpoolAnswer
from phasegate.core.audit.chain import ChainHead
from phasegate.core.audit.trail import TrailEvent, chain_entry, encode_entry, trail_origin_hash
from phasegate.core.workflow.spending import Spending
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.project.ports import RunRecord, TrailSink
from phasegate.engine.project.project import Project
from phasegate.errors import MovedOn, StateConflict
from phasegate.storage.row_events import decode_row
from phasegate.storage.rows import (
    GateRow,
    JobRow,
    NewEvent,
    PackageRow,
    RecordedEvent,
    Row,
    TrailSeal,
    WorkflowRow,
)

R = TypeVar("R", PackageRow, JobRow, GateRow, WorkflowRow)


class MemoryRecord:
    """Fulfils `ports.RunRecord`."""

    def __init__(self) -> None:
        self._log: list[RecordedEvent] = []
        self._rows: dict[tuple[object, ...], Row] = {}
        self._lock = RLock()
        self.anchored = 0

    def reserve_number(self, number: int, slug: str) -> bool:
        return True

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]) -> int:
        rows = [decode_row(feature, event.kind, event.payload) for event in events]
        with self._lock:
            seq = self.last_seq(feature)
            if seq != expected_seq:
                raise MovedOn(f"feature {feature} is at step {seq}, not {expected_seq}")
            for event in events:
                seq += 1
                self._log.append(
                    RecordedEvent(len(self._log) + 1, feature, seq, ts, event.kind, event.payload)
                )
            for row in rows:
                if row is not None:
                    self._rows[_key(row)] = row
        return seq

    def append_unconditionally(self, feature: str, ts: str, events: Sequence[NewEvent]) -> int:
        with self._lock:
            return self.append(feature, self.last_seq(feature), ts, events)

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]:
        with self._lock:
            found = [one for one in self._log if one.feature == feature and one.seq > after_seq]
        return iter(found)

    def last_seq(self, feature: str) -> int:
        return max((one.seq for one in self.events(feature)), default=0)

    def last_seqs(self) -> dict[str, int]:
        return {feature: self.last_seq(feature) for feature in self.features()}

    def chain_head(self) -> ChainHead:
        return ChainHead(len(self._log), "", "")

    def features(self) -> list[str]:
        with self._lock:
            return list(dict.fromkeys(one.feature for one in reversed(self._log) if one.feature))

    def workflows(self) -> list[WorkflowRow]:
        by_feature = {row.feature: row for row in self._of(WorkflowRow)}
        return [by_feature[feature] for feature in self.features() if feature in by_feature]

    def packages(self, feature: str) -> list[PackageRow]:
        return sorted(
            (row for row in self._of(PackageRow) if row.feature == feature), key=lambda row: row.id
        )

    def gates(self, feature: str) -> list[GateRow]:
        return sorted(
            (row for row in self._of(GateRow) if row.feature == feature), key=lambda row: row.number
        )

    def jobs(self, feature: str) -> list[JobRow]:
        found = (row for row in self._of(JobRow) if row.feature == feature)
        return sorted(found, key=lambda row: (row.started, row.id))

    def find_job(self, id_: str) -> JobRow | None:
        return next((row for row in self._of(JobRow) if row.id == id_), None)

    def find_seal(self, job: str) -> TrailSeal | None:
        with self._lock:
            return next(
                (
                    row
                    for row in self._rows.values()
                    if isinstance(row, TrailSeal) and row.job == job
                ),
                None,
            )

    def total_spent(self, feature: str | None = None) -> Spending:
        jobs = [row for row in self._of(JobRow) if feature in (None, row.feature)]
        return Spending(sum(job.tokens for job in jobs), sum(job.cost_usd for job in jobs))

    def rate_limited_agents(self, now_s: float) -> dict[str, float]:
        found: dict[str, float] = {}
        for row in self._of(JobRow):
            if row.retry_at_s > now_s:
                found[row.agent] = max(row.retry_at_s, found.get(row.agent, 0.0))
        return found

    def count_consecutive_limits(self, agent: str) -> int:
        ended = sorted(
            (row for row in self._of(JobRow) if row.agent == agent and row.ended),
            key=lambda row: row.ended,
        )
        return len(list(itertools.takewhile(lambda row: row.retry_at_s > 0, reversed(ended[-10:]))))

    def anchor(self) -> None:
        self.anchored = len(self._log)

    def _of(self, type_: type[R]) -> list[R]:
        with self._lock:
            return [row for row in self._rows.values() if isinstance(row, type_)]


def _key(row: Row) -> tuple[object, ...]:
    match row:
        case WorkflowRow():
            return (WorkflowRow, row.feature)
        case GateRow():
            return (GateRow, row.feature, row.number)
        case TrailSeal():
            return (TrailSeal, row.job)
        case PackageRow():
            return (PackageRow, row.feature, row.id)
        case JobRow():
            return (JobRow, row.id)


class MemoryTrails:
    """Fulfils `ports.TrailSink`."""

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {}
        self._heads: dict[str, tuple[str, str]] = {}
        self._lock = RLock()

    def open(self, feature: str, job: str) -> None:
        with self._lock:
            if job in self.lines:
                raise StateConflict(f"the trail of {job} already exists")
            self.lines[job], self._heads[job] = [], (feature, trail_origin_hash(feature, job))

    def reopen(self, seal: TrailSeal) -> None:
        with self._lock:
            if (
                b"".join(self.lines[seal.job])[-1:] != b"\n"
                or len(self.lines[seal.job]) != seal.lines
            ):
                raise StateConflict(f"the trail of {seal.job} was changed after it was closed")
            self._heads[seal.job] = (seal.feature, seal.hash)

    def append_entry(self, job: str, ts: str, done: TrailEvent) -> None:
        self.append_entries(job, [(ts, done)])

    def append_entries(self, job: str, entries: Sequence[tuple[str, TrailEvent]]) -> None:
        with self._lock:
            for ts, done in entries:
                feature, before = self._heads[job]
                line, digest = chain_entry(before, encode_entry(ts, job, done))
                self.lines[job].append(line)
                self._heads[job] = (feature, digest)

    def close(self, job: str) -> TrailSeal:
        with self._lock:
            feature, digest = self._heads[job]
            return TrailSeal(
                feature, job, len(self.lines[job]), sum(map(len, self.lines[job])), digest
            )

    def forget(self, job: str) -> None:
        with self._lock:
            self._heads.pop(job, None)


class MemoryPapers:
    """Fulfils `ports.Papers`."""

    def __init__(self) -> None:
        self.papers: dict[str, bytes] = {}

    def put(self, data: bytes, name: str = "") -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.papers[digest] = data
        return digest

    def get(self, digest: str) -> bytes:
        data = self.papers.get(digest)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise StateConflict(f"there is no paper {digest}")
        return data


class MemoryRefs:
    """Fulfils `ports.Refs`."""

    def __init__(self, commits: Mapping[str, str]) -> None:
        self._commits = dict(commits)

    def fetch(self, *branches: str) -> Mapping[str, str]:
        return {branch: self._commits[branch] for branch in branches if branch in self._commits}

    def move(self, branch: str, old: str, new: str) -> bool:
        if self._commits.get(branch) != old:
            return self._commits.get(branch) == new
        self._commits[branch] = new
        return True


class CountingClock:
    """Fulfils `ports.Clock`: time that goes on by itself, a tick at each look, and ids that count."""

    def __init__(self, start_s: float = 1_800_000_000.0) -> None:
        self._now_s, self._ids = start_s, itertools.count(1)

    def time_s(self) -> float:
        self._now_s += 0.001
        return self._now_s

    def monotonic_s(self) -> float:
        return self.time_s()

    def random_fraction(self) -> float:
        return 0.5

    def new_id(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._ids):012}"


class Nothing:
    """A look outside that finds nothing changed."""

    def list_changes(self) -> list[str]:
        return []


def refuse(_request: SpoolRequest) -> SpoolAnswer:
    return SpoolAnswer(2, stderr="phasegate: nobody answers here\n")


def memory_desk(project: Project, record: RunRecord, trails: TrailSink) -> DriverContext:
    """The desk of a driver without a store."""
    return DriverContext(
        project, record, trails, lambda *_: refuse, lambda *_: Nothing(), None, Cancelled()
    )
