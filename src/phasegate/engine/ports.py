"""What the engine needs from outside: each a small interface with a local implementation in `engine/local`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from phasegate.record.rows import Event, Recorded


class Journal(Protocol):
    """The journal: a log of events for each feature, each step of it durable and taken by one writer only."""

    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[Event]) -> int:
        """Append events as one durable step; the number of the last one.

        Raises MovedOn, and appends nothing, if the feature's last event is not number `expected_seq`.
        """

    def events(self, feature: str, after_seq: int = 0) -> Iterator[Recorded]:
        """A feature's events in order, from the one behind `after_seq` on."""


class Clock(Protocol):
    """Time, chance and fresh names: all that would make two runs of the same steps differ."""

    def time_s(self) -> float:
        """Seconds since 1970."""

    def monotonic_s(self) -> float:
        """Seconds that are never set back."""

    def chance(self) -> float:
        """A number from 0 up to 1."""

    def new_id(self) -> str:
        """A fresh id for a job, a store or a writer."""


def stamp(moment_s: float) -> str:
    """A moment as every record writes it."""
    return datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
