"""Copy the record to a bucket. Everything that a page refers to is uploaded before the page.

    audit/{feature}/{job}.jsonl     trails, as they were sealed; they only grow
    papers/{sha256}                 evidence, artifacts and prompts, by content
    chain/{store id}/{number}       pages of the chain: entries in order, with their hashes

The journal shows which entries are not in the bucket yet: all after the last page. So a process
that is killed, or cannot reach the bucket, loses nothing, and a second copier continues where the
first one stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from phasegate.core.audit.chain import ChainHead, chain_origin_hash
from phasegate.core.audit.trail import scan_trail
from phasegate.core.audit.trail import trail_origin_hash as trail_origin
from phasegate.errors import StateConflict
from phasegate.files import read_regular_file
from phasegate.files.durable_write import replace_file
from phasegate.storage.bucket.client import Bucket, put_append_only
from phasegate.storage.bucket.numbered_log import (
    EntryPage,
    NumberedLog,
    PageEntry,
    StoredPage,
    decode_entries,
    encode_entry,
)
from phasegate.storage.chain_heads import get_heads_folder
from phasegate.storage.location import Location
from phasegate.storage.reader import StoreReader
from phasegate.storage.row_events import decode_row
from phasegate.storage.rows import TrailSeal
from phasegate.storage.schema import damaged_store_error
from phasegate.storage.trail_files import read_trail, trail_path
from phasegate.typed import read_json

CHAIN_FOLDER = "chain"
DOCUMENTS_FOLDER = "papers"
TRAILS_FOLDER = "audit"
MAX_PAGE_ENTRIES = 500
MAX_PAGE_BYTES = 1_000_000
MAX_DOCUMENT_BYTES = 1 << 28
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class _CopyProgress(msgspec.Struct, frozen=True):
    """A hint about where to continue and how much is left to copy.

    Only speed depends on it.
    """

    address: str
    page: int
    position: int


def trail_object_path(feature: str, job: str) -> str:
    return f"{TRAILS_FOLDER}/{feature}/{job}.jsonl"


def chain_log(bucket: Bucket, store_id: str) -> NumberedLog:
    """Return the log of one repository's chain in a bucket."""
    return NumberedLog(bucket, f"{CHAIN_FOLDER}/{store_id}", chain_origin_hash(store_id))


class BucketCopier:
    """Copies one repository's record to a bucket, one page at a time."""

    def __init__(
        self, location: Location, reader: StoreReader, bucket: Bucket, writer_id: str
    ) -> None:
        self._location = location
        self._reader = reader
        self._bucket = bucket
        self._writer_id = writer_id
        self._log = chain_log(bucket, reader.store_id)
        self._progress_path = get_heads_folder(location, reader.store_id) / "copied"
        self._copied_head: ChainHead | None = None
        self._copied_position = 0
        # Documents that are known to be in the bucket
        self._copied_documents: set[str] = set()

    @property
    def pending_entries(self) -> int:
        """The number of entries that are not known to be in the bucket."""
        self._copied_position = self._copied_position or self._load_progress().position
        return max(0, self._reader.chain_head().entries - self._copied_position)

    def copy_next_page(self) -> bool:
        """Copy the next page; return False if everything has been copied.

        The call can be repeated after any error.
        """
        if self._copied_head is None:
            self._copied_head = self._find_copied_end()

        try:
            entries = tuple(self._next_entries())
            seals = _last_seals(entries)
        except ValueError as error:
            raise damaged_store_error(
                self._location.store_path, f"after entry {self._copied_position}: {error}"
            ) from error

        if not entries:
            return False

        lacking: list[str] = []
        digests = {
            digest for entry in entries for digest in _DIGEST.findall(entry.payload.encode())
        }
        for seal in seals:
            digests |= self._copy_trail(seal, lacking)

        copied = tuple(
            sorted(
                name
                for name in (one.decode() for one in digests)
                if self._copy_document(name, lacking)
            )
        )

        body = msgspec.json.encode(EntryPage(entries, copied, tuple(lacking)))
        self._advance_to(self._log.append(self._copied_head, self._writer_id, body))

        return True

    def _next_entries(self) -> Iterator[PageEntry]:
        size = 0
        for number, link in enumerate(self._reader.chain_links(self._copied_position)):
            size += len(link.entry.payload)
            if number == MAX_PAGE_ENTRIES or (number and size > MAX_PAGE_BYTES):
                return
            yield encode_entry(link)

    def _copy_trail(self, seal: TrailSeal, missing: list[str]) -> set[bytes]:
        """Copy a trail up to its seal; return the hashes that occur in it.

        Lines after the seal are copied later, with the next seal.
        """
        content = read_trail(trail_path(self._location, seal.feature, seal.job))[: seal.bytes]
        reading = scan_trail(content, trail_origin(seal.feature, seal.job))
        if (reading.lines, reading.hash, reading.broken) != (seal.lines, seal.hash, None):
            missing.append(f"trail {seal.feature}/{seal.job}: it does not match its seal")
        elif not put_append_only(self._bucket, trail_object_path(seal.feature, seal.job), content):
            missing.append(f"trail {seal.feature}/{seal.job}: the bucket has a different one")

        return {*_DIGEST.findall(content)}

    def _copy_document(self, name: str, missing: list[str]) -> bool:
        """Copy the document with this hash, if it exists. Return True if it is in the bucket."""
        if name in self._copied_documents:
            return True

        data = read_regular_file(
            self._location.data_folder / DOCUMENTS_FOLDER / name, MAX_DOCUMENT_BYTES
        )
        if data is None:
            return False
        if sha256(data).hexdigest() != name:
            missing.append(f"document {name}: it was changed")
            return False

        self._bucket.create(f"{DOCUMENTS_FOLDER}/{name}", data)
        self._copied_documents.add(name)

        return True

    def _find_copied_end(self) -> ChainHead:
        """Return the chain head at which the copy in the bucket ends."""
        last = self._log.last_page(self._load_progress().page)
        if last is None:
            self._copied_position = 0
            return self._log.origin_head

        self._check_history(last)
        return last.head

    def _advance_to(self, stored: StoredPage) -> None:
        """Mark a page as copied, by this or another copier.

        Raise an error if the page belongs to a different history.
        """
        self._check_history(stored)
        self._copied_head = stored.head
        state = _CopyProgress(str(self._bucket.address), stored.head.entries, self._copied_position)
        replace_file(self._progress_path, msgspec.json.encode(state))

    def _check_history(self, stored: StoredPage) -> None:
        last = decode_entries(stored).entries[-1]
        if self._reader.chain_hash_at(last.position) != last.hash:
            raise StateConflict(
                f"{self._bucket.address} has a different history of this repository from entry"
                f" {last.position} or before",
                "compare them with: phasegate audit verify --remote (nothing was changed there)",
            )

        self._copied_position = last.position

    def _load_progress(self) -> _CopyProgress:
        none = _CopyProgress(str(self._bucket.address), 0, 0)
        try:
            known = read_json(read_regular_file(self._progress_path, 4096) or b"", _CopyProgress)
        except msgspec.MsgspecError:
            return none

        if known.address == none.address:
            return known
        return none


def _last_seals(entries: Iterable[PageEntry]) -> Iterable[TrailSeal]:
    """Return the last seal of each trail."""
    rows = (decode_row(entry.feature, entry.kind, entry.payload.encode()) for entry in entries)
    return {row.job: row for row in rows if isinstance(row, TrailSeal)}.values()
