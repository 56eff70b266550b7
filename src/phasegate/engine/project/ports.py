"""The ports of the engine: small interfaces, each with a local and an in-memory implementation.

Steps use `DocumentStore` and `Clock`; a worker that runs an agent also uses `TrailSink`; only a
driver uses the record.
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
    """A log of events per feature. Every append is durable, with optimistic concurrency control."""

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events as one durable step; return the number of the last one.

        Raises MovedOn and appends nothing if the number of the feature's last event is not
        `expected_seq`.
        """

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]:
        """Return the events of a feature after number `after_seq`, in order."""


class RecordReader(Protocol):
    """Read access to the record. All of it can be derived from the events."""

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]: ...

    def last_seq(self, feature: str) -> int: ...

    def last_seqs(self) -> dict[str, int]:
        """Return the number of every feature's last event, as known on this machine.

        Makes no remote request.
        """

    def chain_head(self) -> ChainHead:
        """Return the head of the audit chain."""

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
    """Read and write access to the record, for drivers."""

    def append_unconditionally(self, feature: str, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events that do not depend on the feature's last step."""

    def reserve_number(self, number: int, slug: str) -> bool:
        """Reserve the number of a new feature; return False if another feature has it."""

    def anchor(self) -> None:
        """Anchor the audit chain, so that later changes are detected.

        Called when a run ends and when a gate is decided.
        """


class TrailSink(Protocol):
    """Writes the trails of jobs; implemented by `storage.trails.TrailWriter`."""

    def open(self, feature: str, job: str) -> None: ...

    def reopen(self, seal: TrailSeal) -> object:
        """Reopen a closed trail; raises StateConflict if it was changed since."""

    def append_entries(self, job: str, entries: Sequence[tuple[str, TrailEvent]]) -> None:
        """Append entries with their times, as one durable step."""

    def close(self, job: str) -> TrailSeal:
        """Close a job's trail. Record the returned seal in the journal, then call `forget`."""

    def forget(self, job: str) -> None: ...


class Refs(Protocol):
    """The branches, as shared by all machines."""

    def fetch(self, *branches: str) -> Mapping[str, str]:
        """Return the commits of these branches, without the missing ones."""

    def move(self, branch: str, old: str, new: str) -> bool:
        """Move a branch by compare-and-swap; return False if it was not at `old`."""


class DocumentStore(Protocol):
    """Content-addressed storage for documents that one step writes and a later one reads.

    Evidence, remarks, claims and prompts are stored here, for any machine.
    """

    def put(self, data: bytes, name: str = "") -> str:
        """Store a document; return its hash.

        `name` is a readable file name for it, if documents are files.
        """

    def get(self, digest: str) -> bytes:
        """Return the document of a hash; raises StateConflict if it is missing or changed."""


class Clock(Protocol):
    """Time, randomness and ids: everything that would make two runs of the same steps differ."""

    def time_s(self) -> float:
        """Seconds since 1970."""

    def monotonic_s(self) -> float:
        """Monotonic seconds."""

    def random_fraction(self) -> float:
        """Return a random number in [0, 1)."""

    def new_id(self) -> str:
        """Return a new id for a job, a store or a writer."""


def format_timestamp(moment_s: float) -> str:
    """Format a time as in all records: UTC, ISO 8601, milliseconds."""
    return (
        datetime.fromtimestamp(moment_s, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
