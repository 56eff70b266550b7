"""The domain chain: every recorded state change, bound to the one before it.

An entry's hash is SHA-256 over the previous hash and all fields of the entry. Each field is preceded by its length, so
that no two different entries have the same encoding. The chain alone shows that it is consistent; that it is the
chain which was written is shown by heads that are kept where the writer of the log cannot reach them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

_CHAIN = b"phasegate domain chain 1"


class ChainEntry(NamedTuple):
    """One state change: its place in the chain, its place in its feature's journal, and what happened."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: bytes


class Link(NamedTuple):
    """An entry with the hash that was stored beside it."""

    entry: ChainEntry
    hash: str


class Head(NamedTuple):
    """The hash after so many entries, and where this head is kept."""

    entries: int
    hash: str
    kept_in: str = ""


class Break(NamedTuple):
    """The first entry (or line) that is not what was written, and why."""

    position: int
    why: str


def encode(fields: Iterable[bytes]) -> bytes:
    """The fields as one byte string that can be cut in one way only: each behind its length in eight bytes."""
    return b"".join(len(field).to_bytes(8, "big") + field for field in fields)


def origin(store_id: str) -> str:
    """The hash before the first entry; chains of two repositories share no hash."""
    return sha256(encode((_CHAIN, store_id.encode()))).hexdigest()


def entry_hash(previous: str, entry: ChainEntry) -> str:
    """The hash that binds an entry to all that went before."""
    position, feature, seq, ts, kind, payload = entry
    texts = (previous, str(position), feature, str(seq), ts, kind)
    return sha256(encode((_CHAIN, *(text.encode("utf-8", "surrogatepass") for text in texts), payload))).hexdigest()


def first_break(start: str, links: Iterable[Link], heads: Sequence[Head], ends: Sequence[Head]) -> Break | None:
    """The first entry that is not what was written, or None.

    The chain must pass through every one of `heads`, and end in one of `ends` (none: the end is not known).
    """
    wanted: dict[int, list[Head]] = {}
    for head in heads:
        wanted.setdefault(head.entries, []).append(head)
    previous, count = start, 0
    if broken := _missed(0, start, wanted):
        return broken
    for link in links:
        count += 1
        if broken := _badly_linked(count, previous, link) or _missed(count, link.hash, wanted):
            return broken
        previous = link.hash
    return _wrong_end(count, previous, heads, ends)


def _badly_linked(count: int, previous: str, link: Link) -> Break | None:
    position = link.entry.position
    if position > count:
        return Break(count, f"is missing: entry {position} follows entry {count - 1}")
    if position < count:
        return Break(position, "appears twice, or out of order")
    if entry_hash(previous, link.entry) != link.hash:
        return Break(count, "was changed: its hash does not fit its fields and the entry before")
    return None


def _missed(count: int, found: str, wanted: dict[int, list[Head]]) -> Break | None:
    for head in wanted.get(count, ()):
        if head.hash != found:
            return Break(count, f"is not the one that was written: its hash differs from {head.kept_in}")
    return None


def _wrong_end(count: int, found: str, heads: Sequence[Head], ends: Sequence[Head]) -> Break | None:
    furthest = max(heads, key=lambda head: head.entries, default=Head(0, "", "the origin"))
    if furthest.entries > count:
        return Break(count + 1, f"is missing: {furthest.kept_in} covers {furthest.entries} entries, {count} are left")
    if not ends or any(head.entries == count and head.hash == found for head in ends):
        return None
    return Break(furthest.entries + 1, f"was added: {furthest.kept_in} ends at entry {furthest.entries}")
