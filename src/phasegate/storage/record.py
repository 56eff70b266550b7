"""Define the interface of a writable record: the local store, or the journal in a bucket."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from phasegate.errors import MovedOn
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import NewEvent


class WritableStore(StoreReader):
    """The interface that `Store` and `BucketStore` share."""

    @abstractmethod
    def append(self, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events as one durable step; return the number of the last one.

        Raises MovedOn, and appends nothing, if the feature's last event is not number
        `expected_seq`.
        """

    def append_unconditionally(self, feature: str, ts: str, events: Sequence[NewEvent]) -> int:
        """Append events that do not depend on the feature's last step."""
        while True:
            try:
                return self.append(feature, self.last_seq(feature), ts, events)
            except MovedOn:
                continue

    def reserve_number(self, number: int, slug: str) -> bool:
        """Reserve the number of a new feature; return False if another feature has it.

        On one machine a lock protects it.
        """
        return True

    @abstractmethod
    def anchor(self) -> None:
        """Anchor the chain outside the store, so that a later change is detected."""
