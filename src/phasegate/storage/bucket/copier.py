"""The record, copied to a bucket: what a page tells of is there before the page is.

    audit/{feature}/{job}.jsonl     trails, as they were sealed; they only grow
    papers/{sha256}                 evidence, artifacts and prompts, by content
    chain/{store id}/{number}       pages of the chain: entries in order, with their hashes

What is not in the bucket yet is known from the journal: everything behind the last page. So whoever is killed, or finds
nobody there, loses nothing, and a second copier finds what the first has done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from phasegate.core.audit.chain import ChainEntry, Head, Link, origin
from phasegate.core.audit.trail import origin as trail_origin
from phasegate.core.audit.trail import read_lines
from phasegate.errors import StateConflict
from phasegate.files import read_plain
from phasegate.files.durable_write import replace_file
from phasegate.storage.bucket.client import Bucket, put_grown
from phasegate.storage.bucket.numbered_log import KeptPage, NumberedLog
from phasegate.storage.chain_heads import outside_folder
from phasegate.storage.location import Location
from phasegate.storage.reader import Reader
from phasegate.storage.row_events import row_of
from phasegate.storage.rows import Seal
from phasegate.storage.schema import damaged
from phasegate.storage.trail_files import read_trail, trail_path
from phasegate.typed import read_json

CHAIN, PAPERS, TRAILS = "chain", "papers", "audit"
MOST_ENTRIES, MOST_BYTES = 500, 1_000_000
LARGEST_PAPER = 1 << 28
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class CopiedEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the chain with its hash, as a page holds it."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: str
    hash: str

    @property
    def link(self) -> Link:
        fields = (self.position, self.feature, self.seq, self.ts, self.kind, self.payload.encode())
        return Link(ChainEntry(*fields), self.hash)


class CopiedEntries(msgspec.Struct, frozen=True):
    """What a page of the chain holds; `lacking` names what was not as the journal says, and so was not copied."""

    entries: tuple[CopiedEntry, ...]
    papers: tuple[str, ...]
    lacking: tuple[str, ...] = ()


class _Progress(msgspec.Struct, frozen=True):
    """A hint where to look, and how much there is still to be copied. Nothing rests on it."""

    address: str
    page: int
    position: int


def trail_name(feature: str, job: str) -> str:
    return f"{TRAILS}/{feature}/{job}.jsonl"


def chain_log(bucket: Bucket, store_id: str) -> NumberedLog:
    """The chain of one repository in a bucket."""
    return NumberedLog(bucket, f"{CHAIN}/{store_id}", origin(store_id))


def read_entries(kept: KeptPage) -> CopiedEntries:
    """What a page of a chain holds."""
    found = kept.read(CopiedEntries)
    if not found.entries:
        raise StateConflict(f"page {kept.page.n} of the chain is empty")
    return found


class Copier:
    """Copies one repository's record to a bucket, a page a time."""

    def __init__(self, location: Location, reader: Reader, bucket: Bucket, by: str) -> None:
        self._location, self._reader, self._bucket, self._by = location, reader, bucket, by
        self._log = chain_log(bucket, reader.store_id)
        self._file = outside_folder(location, reader.store_id) / "copied"
        self._at: Head | None = None
        self._position = 0
        self._there: set[str] = set()  # papers that need not be looked for again

    @property
    def waiting(self) -> int:
        """How many entries are not known to be in the bucket."""
        self._position = self._position or self._remembered().position
        return max(0, self._reader.head().entries - self._position)

    def copy_page(self) -> bool:
        """Copy what comes next; False if all is there. Whatever goes wrong, it can be called again."""
        if self._at is None:
            self._at = self._found_out()
        try:
            entries = tuple(self._next())
            seals = _seals(entries)
        except ValueError as error:
            raise damaged(self._location.store, f"behind entry {self._position}: {error}") from error
        if not entries:
            return False
        lacking: list[str] = []
        papers = {paper for entry in entries for paper in _DIGEST.findall(entry.payload.encode())}
        for seal in seals:
            papers |= self._copy_trail(seal, lacking)
        copied = tuple(sorted(name for name in (one.decode() for one in papers) if self._copy_paper(name, lacking)))
        body = msgspec.json.encode(CopiedEntries(entries, copied, tuple(lacking)))
        self._move_to(self._log.append(self._at, self._by, body))
        return True

    def _next(self) -> Iterator[CopiedEntry]:
        size = 0
        for number, (entry, digest) in enumerate(self._reader.links(self._position)):
            size += len(entry.payload)
            if number == MOST_ENTRIES or (number and size > MOST_BYTES):
                return
            yield CopiedEntry(*entry[:5], entry.payload.decode(), digest)

    def _copy_trail(self, seal: Seal, lacking: list[str]) -> set[bytes]:
        """Copy a trail up to its seal; the hashes that it names. It may have grown since: then a later seal follows."""
        content = read_trail(trail_path(self._location, seal.feature, seal.job))[: seal.bytes]
        reading = read_lines(content, trail_origin(seal.feature, seal.job))
        if (reading.lines, reading.hash, reading.broken) != (seal.lines, seal.hash, None):
            lacking.append(f"trail {seal.feature}/{seal.job}: it is not as it was sealed")
        elif not put_grown(self._bucket, trail_name(seal.feature, seal.job), content):
            lacking.append(f"trail {seal.feature}/{seal.job}: the bucket holds another one")
        return {*_DIGEST.findall(content)}

    def _copy_paper(self, name: str, lacking: list[str]) -> bool:
        """Copy the paper of a hash, if the hash is one of a paper; whether it is in the bucket."""
        if name in self._there:
            return True
        data = read_plain(self._location.folder / PAPERS / name, LARGEST_PAPER)
        if data is None:
            return False
        if sha256(data).hexdigest() != name:
            lacking.append(f"paper {name}: it was changed")
            return False
        self._bucket.create(f"{PAPERS}/{name}", data)
        self._there.add(name)
        return True

    def _found_out(self) -> Head:
        """Where the copy ends, as the bucket says."""
        last = self._log.last(self._remembered().page)
        if last is None:
            self._position = 0
            return self._log.start
        self._check(last)
        return last.head

    def _move_to(self, kept: KeptPage) -> None:
        """Take a page as done, ours or another copier's, if it is of our history."""
        self._check(kept)
        self._at = kept.head
        state = _Progress(str(self._bucket.address), kept.head.entries, self._position)
        replace_file(self._file, msgspec.json.encode(state))

    def _check(self, kept: KeptPage) -> None:
        last = read_entries(kept).entries[-1]
        if self._reader.hash_at(last.position) != last.hash:
            raise StateConflict(
                f"{self._bucket.address} holds another history of this repository from entry {last.position} or before",
                "nothing was changed there; see: phasegate audit verify --remote",
            )
        self._position = last.position

    def _remembered(self) -> _Progress:
        none = _Progress(str(self._bucket.address), 0, 0)
        try:
            known = read_json(read_plain(self._file, 4096) or b"", _Progress)
        except msgspec.MsgspecError:
            return none
        return known if known.address == none.address else none


def _seals(entries: Iterable[CopiedEntry]) -> Iterable[Seal]:
    """The last seal of each trail."""
    rows = (row_of(entry.feature, entry.kind, entry.payload.encode()) for entry in entries)
    return {row.job: row for row in rows if isinstance(row, Seal)}.values()
