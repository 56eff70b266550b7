"""Remember the results of checks by key, in the journal of the repository.

A result is believed only if the journal names its hash, and the entry is a link of the journal's
chain: a file that an agent writes, or an entry that it changes, is not. The journal survives a
crash, so a check that has ended is never run again for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

import msgspec

from phasegate.engine.project.ports import Journal
from phasegate.storage.rows import NewEvent
from phasegate.typed import read_json

CHECKS_RECORDED = "checks.recorded"
# Results belong to trees, not to features
_NO_FEATURE = ""


class CheckJournal(Journal, Protocol):
    """The journal of this repository, with a chain over all of its entries."""

    def append_unconditionally(self, feature: str, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events that do not depend on the feature's last step."""

    def is_link_intact(self, position: int) -> bool:
        """Return True if an entry still has the hash that continues the chain before it."""


class _RecordedChecks(msgspec.Struct, frozen=True):
    """Journal entry: the hash of each result, by key."""

    results: Mapping[str, str]


class CheckRecord:
    """The hashes of known results, by key. Threads may share one instance.

    Without a journal, only the results of this process are known.
    """

    def __init__(self) -> None:
        self._journal: CheckJournal | None = None
        self._seq = 0
        self._lock = Lock()
        # The hash of each result, and the position of its entry; 0 if this process made it
        self._known: dict[str, tuple[str, int]] = {}

    @contextmanager
    def attach(self, journal: CheckJournal) -> Iterator[None]:
        """Use a journal while the context lasts."""
        before = self._journal
        self._journal = journal
        try:
            yield
        finally:
            self._journal = before

    def find(self, key: str) -> str:
        """Return the hash of the result with this key; empty if it is unknown."""
        with self._lock:
            self._read_new_entries()
            digest, position = self._known.get(key, ("", 0))
            if position and (self._journal is None or not self._journal.is_link_intact(position)):
                return ""

            return digest

    def add(self, ts: str, results: Mapping[str, str]) -> None:
        """Record the hashes of results, by key."""
        with self._lock:
            self._known.update({key: (digest, 0) for key, digest in results.items()})
            if self._journal is not None:
                payload = msgspec.json.encode(_RecordedChecks(results))
                event = NewEvent(CHECKS_RECORDED, payload)
                self._journal.append_unconditionally(_NO_FEATURE, ts, [event])

    def _read_new_entries(self) -> None:
        if self._journal is None:
            return

        for event in self._journal.events(_NO_FEATURE, self._seq):
            self._seq = event.seq
            if event.kind != CHECKS_RECORDED:
                continue
            for key, digest in read_json(event.payload, _RecordedChecks).results.items():
                self._known[key] = (digest, event.position)
