"""What the engine needs from outside.

Small interfaces, each with a local implementation and one in memory for tests.

Steps see `Papers` and `Clock`; a worker that runs an agent sees `TrailSink` too; only a driver sees
the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from phasegate.core.audit.chain import ChainHead
from phasegate.core.audit.trail import TrailEvent
from phasegate.core.workflow.spending import Spending
from phasegate.storage.rows import (
    GateRow,
    JobRow,
    NewEvent,
    PackageRow,
    RecordedEvent,
    TrailSeal,
    WorkflowRow,
)


class Journal(Protocol):
    """A log of events for each feature: each step of it is durable, and taken by one writer only."""

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events as one durable step; the number of the last one.

        Raises MovedOn, and appends nothing, if the feature's last event is not number
        `expected_seq`.
        """

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]:
        """A feature's events in order, from the one behind `after_seq` on."""


class RecordReader(Protocol):
    """What is on record, and what is asked of it. All of it could be told from the events."""

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]: ...

    def last_seq(self, feature: str) -> int: ...

    def last_seqs(self) -> dict[str, int]:
        """The number of every feature's last event, as far as it is known here.

        Nobody else is asked.
        """

    def chain_head(self) -> ChainHead:
        """The end of the audit chain."""

    def features(self) -> list[str]: ...

    def workflows(self) -> list[WorkflowRow]: ...

    def packages(self, feature: str) -> list[PackageRow]: ...

    def gates(self, feature: str) -> list[GateRow]: ...

    def jobs(self, feature: str) -> list[JobRow]: ...

    def find_job(self, id_: str) -> JobRow | None: ...

    def find_seal(self, job: str) -> TrailSeal | None: ...

    def total_spent(self, feature: str | None = None) -> Spending: ...

    def rate_limited_agents(self, now_s: float) -> dict[str, float]: ...

    def count_consecutive_limits(self, agent: str) -> int: ...


class RunRecord(Journal, RecordReader, Protocol):
    """The record of a driver."""

    def append_unconditionally(self, feature: str, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events that do not depend on what the feature's last step was."""

    def anchor(self) -> None:
        """Make what was recorded hard to change unseen.

        To be done when a run ends and a gate is decided.
        """


class TrailSink(Protocol):
    """Where the trails of jobs go: `record.trails.Trails` is one."""

    def open(self, feature: str, job: str) -> None: ...

    def reopen(self, seal: TrailSeal) -> object:
        """Go on with a trail that was closed; raises StateConflict if it is not the one that was."""

    def append_entries(self, job: str, entries: Sequence[tuple[str, TrailEvent]]) -> None:
        """Append entries with their times, as one durable step."""

    def close(self, job: str) -> TrailSeal:
        """End a job's trail. The seal belongs into the journal, and then call `forget`."""

    def forget(self, job: str) -> None: ...


class Refs(Protocol):
    """Where branches are, as everybody sees them."""

    def fetch(self, *branches: str) -> Mapping[str, str]:
        """The commits of these branches; one that is not there is left out."""

    def move(self, branch: str, old: str, new: str) -> bool:
        """Move a branch by compare and swap; False if it was elsewhere."""


class DocumentStore(Protocol):
    """What one step writes and a later one reads: evidence, remarks, claims, prompts.

    By content, for any machine.
    """

    def put(self, data: bytes, name: str = "") -> str:
        """Keep a paper; its hash.

        Where papers are files, `name` is the one under which people find it.
        """

    def get(self, digest: str) -> bytes:
        """The paper of that hash; raises StateConflict if it is gone or not what it was."""


class Clock(Protocol):
    """Time, chance and fresh names: all that would make two runs of the same steps differ."""

    def time_s(self) -> float:
        """Seconds since 1970."""

    def monotonic_s(self) -> float:
        """Seconds that are never set back."""

    def random_fraction(self) -> float:
        """A number from 0 up to 1."""

    def new_id(self) -> str:
        """A fresh id for a job, a store or a writer."""


def format_timestamp(moment_s: float) -> str:
    """A moment as every record writes it."""
    return (
        datetime.fromtimestamp(moment_s, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
