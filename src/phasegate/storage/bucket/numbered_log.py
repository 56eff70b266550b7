"""A log in a bucket: numbered pages, each made once and bound to the one before by its hash.

Who appends names the page that it has seen last. Of two writers at one number exactly one makes the page; a writer
whose answer was lost finds its own bytes there. Nothing is ever written over.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec

from phasegate.core.audit.chain import Head
from phasegate.errors import ForeignHistory, StateConflict
from phasegate.storage.bucket.client import Bucket
from phasegate.typed import read_json

T = TypeVar("T")


class Page(msgspec.Struct, frozen=True):
    """One object of a log. `by` tells its writer from every other, so that equal bodies are not taken for one."""

    n: int
    prev: str
    by: str
    body: msgspec.Raw


class KeptPage(NamedTuple):
    """A page as it is in the bucket, and the head that it makes."""

    page: Page
    head: Head

    def read(self, type_: type[T]) -> T:
        """What it holds."""
        try:
            return read_json(bytes(self.page.body), type_)
        except msgspec.MsgspecError as error:
            raise ForeignHistory(f"page {self.page.n} was not written by Phasegate: {error}") from error


class NumberedLog:
    """One log: the pages below a folder of a bucket."""

    def __init__(self, bucket: Bucket, folder: str, origin: str) -> None:
        self._bucket, self._folder = bucket, folder
        self.start = Head(0, origin, f"{bucket.address} {folder}")

    def append(self, at: Head, by: str, body: bytes) -> KeptPage:
        """Make the page behind `at`. What comes back is the page of that number: ours, or another's that was first."""
        data = msgspec.json.encode(Page(at.entries + 1, at.hash, by, msgspec.Raw(body)))
        path = self._path(at.entries + 1)
        if not self._bucket.create(path, data):
            found = self._bucket.get(path)
            if found is None:
                raise StateConflict(f"{path} was removed from {self._bucket.address}", "see: phasegate audit verify")
            data = found.data
        return self._read(data, at)

    def page(self, at: Head) -> KeptPage | None:
        """The page behind a head; None if there is none."""
        found = self._bucket.get(self._path(at.entries + 1))
        return None if found is None else self._read(found.data, at)

    def pages(self, at: Head | None = None) -> Iterator[KeptPage]:
        """All pages behind a head, in order. One that is missing, or does not follow, is a StateConflict."""
        at = at or self.start
        for path in self._bucket.names(self._folder, self._path(at.entries) if at.entries else ""):
            kept = self.page(at)
            if kept is None or path != self._path(kept.page.n):
                raise StateConflict(
                    f"page {at.entries + 1} of {self._folder} is missing in {self._bucket.address}",
                    "see: phasegate audit verify --remote",
                )
            yield kept
            at = kept.head

    def last(self, hint: int = 0) -> KeptPage | None:
        """The last page, whatever it follows; None if there is none. `hint`: the number of one that should be there."""
        after = self._path(hint - 1) if hint > 1 else ""
        names = self._bucket.names(self._folder, after) or (self._bucket.names(self._folder) if after else [])
        found = self._bucket.get(names[-1]) if names else None
        return None if found is None else self._read(found.data, None)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:010}"

    def _read(self, data: bytes, at: Head | None) -> KeptPage:
        try:
            page = read_json(data, Page)
        except msgspec.MsgspecError as error:
            where = f"page {at.entries + 1}" if at else "the last page"
            raise ForeignHistory(f"{where} of {self._folder} was not written by Phasegate: {error}") from error
        if at and (page.n, page.prev) != (at.entries + 1, at.hash):
            raise ForeignHistory(
                f"page {at.entries + 1} of {self._folder} in {self._bucket.address} follows another history",
                "a copy of the repository, or of the bucket, was written to; nothing was changed",
            )
        return KeptPage(page, Head(page.n, sha256(data).hexdigest(), self.start.kept_in))
