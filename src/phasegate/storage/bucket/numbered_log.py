"""A log in a bucket: numbered pages, each created once and linked to its predecessor by a hash.

Each writer names the last page that it saw. If two writers create a page with the same number,
exactly one succeeds; a writer whose response was lost recognizes its own bytes. Pages are never
overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec

from phasegate.core.audit.chain import ChainEntry, ChainHead, ChainLink
from phasegate.errors import DivergedHistory, StateConflict
from phasegate.storage.bucket.client import Bucket
from phasegate.typed import read_json

T = TypeVar("T")


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page of a log, stored as one object.

    `by` identifies the writer, so that two pages with equal bodies can be distinguished.
    """

    n: int
    prev: str
    by: str
    body: msgspec.Raw
    # Id of the repository that the page belongs to, in the record of a fleet
    repository: str = ""


class StoredPage(NamedTuple):
    """A page as stored in the bucket, and the chain head after it."""

    page: Page
    head: ChainHead

    def decode_body(self, type_: type[T]) -> T:
        """Decode the body of the page as the given type."""
        try:
            return read_json(bytes(self.page.body), type_)
        except msgspec.MsgspecError as error:
            raise DivergedHistory(
                f"page {self.page.n} was not written by Phasegate: {error}"
            ) from error


class PageEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a chain with its hash, as stored in a page."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: str
    hash: str

    @property
    def link(self) -> ChainLink:
        fields = (self.position, self.feature, self.seq, self.ts, self.kind, self.payload.encode())
        return ChainLink(ChainEntry(*fields), self.hash)


class EntryPage(msgspec.Struct, frozen=True):
    """The body of a page with entries of a chain: of a repository, or of one feature.

    `documents` lists the documents that it refers to, and `lacking` the files that did not match
    the journal and were not copied.
    """

    entries: tuple[PageEntry, ...]
    documents: tuple[str, ...] = msgspec.field(default=(), name="papers")
    lacking: tuple[str, ...] = ()


def encode_entry(link: ChainLink) -> PageEntry:
    """Convert an entry of the chain to the form that a page stores."""
    return PageEntry(*link.entry[:5], link.entry.payload.decode(), link.hash)


def decode_entries(stored: StoredPage) -> EntryPage:
    """Parse a page of entries."""
    found = stored.decode_body(EntryPage)
    if not found.entries:
        raise DivergedHistory(f"page {stored.page.n} has no entries")
    return found


class NumberedLog:
    """One log: the pages below a folder of a bucket."""

    def __init__(self, bucket: Bucket, folder: str, origin: str) -> None:
        self._bucket = bucket
        self._folder = folder
        self.origin_head = ChainHead(0, origin, f"{bucket.address} {folder}")

    def append(self, previous: ChainHead, writer_id: str, body: bytes) -> StoredPage:
        """Create the page after `previous`.

        Return the page with that number. It may belong to another writer who was faster.
        """
        page = Page(
            n=previous.entries + 1,
            prev=previous.hash,
            by=writer_id,
            body=msgspec.Raw(body),
            repository=self._bucket.repository,
        )
        data = msgspec.json.encode(page)
        path = self._page_path(previous.entries + 1)

        if not self._bucket.create(path, data):
            found = self._bucket.get(path)
            if found is None:
                raise StateConflict(
                    f"{path} was removed from {self._bucket.address}", "run: phasegate audit verify"
                )

            data = found.data

        return self._decode_page(data, previous)

    def page_after(self, previous: ChainHead) -> StoredPage | None:
        """Return the page after a chain head, or None if there is none yet."""
        found = self._bucket.get(self._page_path(previous.entries + 1))
        if found is None:
            return None
        return self._decode_page(found.data, previous)

    def pages_after(self, previous: ChainHead | None = None) -> Iterator[StoredPage]:
        """Yield all pages after a head, in order.

        Raise StateConflict if one is missing or does not follow its predecessor.
        """
        previous = previous or self.origin_head

        for path in self._bucket.list_paths(
            self._folder, self._page_path(previous.entries) if previous.entries else ""
        ):
            kept = self.page_after(previous)
            if kept is None or path != self._page_path(kept.page.n):
                raise StateConflict(
                    f"page {previous.entries + 1} of {self._folder} is missing in"
                    f" {self._bucket.address}",
                    "run: phasegate audit verify --remote",
                )

            yield kept
            previous = kept.head

    def last_page(self, hint: int = 0) -> StoredPage | None:
        """Return the last page without checking its predecessors, or None if the log is empty.

        `hint` is the number of a page that probably exists; the search starts there.
        """
        if hint > 1:
            after = self._page_path(hint - 1)
        else:
            after = ""

        names = self._bucket.list_paths(self._folder, after) or (
            self._bucket.list_paths(self._folder) if after else []
        )
        if names:
            found = self._bucket.get(names[-1])
        else:
            found = None

        if found is None:
            return None

        return self._decode_page(found.data, None)

    def _page_path(self, number: int) -> str:
        return f"{self._folder}/{number:010}"

    def _decode_page(self, data: bytes, previous: ChainHead | None) -> StoredPage:
        """Decode a page; raise DivergedHistory if it does not follow `previous`."""
        try:
            page = read_json(data, Page)
        except msgspec.MsgspecError as error:
            if previous:
                where = f"page {previous.entries + 1}"
            else:
                where = "the last page"

            raise DivergedHistory(
                f"{where} of {self._folder} was not written by Phasegate: {error}"
            ) from error

        if previous and (page.n, page.prev) != (previous.entries + 1, previous.hash):
            raise DivergedHistory(
                f"page {previous.entries + 1} of {self._folder} in {self._bucket.address} follows"
                " a different history",
                "use only one copy of the repository or of the bucket; nothing was changed",
            )

        wanted = self._bucket.repository
        if wanted and page.repository != wanted:
            raise DivergedHistory(
                f"page {page.n} of {self._folder} in {self._bucket.address} belongs to repository"
                f" {page.repository[:12] or '(unknown)'}, not to {wanted[:12]}",
                "set another prefix in [storage], one for each repository",
            )

        return StoredPage(
            page, ChainHead(page.n, sha256(data).hexdigest(), self.origin_head.kept_in)
        )
