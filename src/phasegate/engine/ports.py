"""What the engine needs from outside: each a small interface with a local implementation in `engine/local`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


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
