"""The domain chain: every recorded state change, bound to the one before it.

An entry's hash is SHA-256 over the previous hash and all fields of the entry. Each field is
preceded by its length, so that no two different entries have the same encoding. The chain alone
shows that it is consistent; that it is the chain which was written is shown by heads that are kept
where the writer of the log cannot reach them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

_CHAIN_DOMAIN = b"phasegate domain chain 1"


class ChainEntry(NamedTuple):
    """One state change: its place in the chain, its place in its feature's journal, and what
    happened.
    """

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: bytes


class ChainLink(NamedTuple):
    """An entry with the hash that was stored beside it."""

    entry: ChainEntry
    hash: str


class ChainHead(NamedTuple):
    """The hash after so many entries, and where this head is kept."""

    entries: int
    hash: str
    kept_in: str = ""


class ChainBreak(NamedTuple):
    """The first entry (or line) that is not what was written, and why."""

    position: int
    why: str


def encode_fields(fields: Iterable[bytes]) -> bytes:
    """The fields as one byte string that can be cut in one way only.

    Each behind its length in eight bytes.
    """
    return b"".join(len(field).to_bytes(8, "big") + field for field in fields)


def chain_origin_hash(store_id: str) -> str:
    """The hash before the first entry; chains of two repositories share no hash."""
    return sha256(encode_fields((_CHAIN_DOMAIN, store_id.encode()))).hexdigest()


def compute_entry_hash(previous: str, entry: ChainEntry) -> str:
    """The hash that binds an entry to all that went before."""
    position, feature, seq, ts, kind, payload = entry
    texts = (previous, str(position), feature, str(seq), ts, kind)
    return sha256(
        encode_fields(
            (_CHAIN_DOMAIN, *(text.encode("utf-8", "surrogatepass") for text in texts), payload)
        )
    ).hexdigest()


def find_first_break(
    start: str, links: Iterable[ChainLink], heads: Sequence[ChainHead], ends: Sequence[ChainHead]
) -> ChainBreak | None:
    """The first entry that is not what was written, or None.

    The chain must pass through every one of `heads`, and end in one of `ends` (none: the end is not
    known).
    """
    wanted: dict[int, list[ChainHead]] = {}
    for head in heads:
        wanted.setdefault(head.entries, []).append(head)

    previous = start
    count = 0
    if broken := _find_missed_head(0, start, wanted):
        return broken

    for link in links:
        count += 1
        if broken := _find_bad_link(count, previous, link) or _find_missed_head(
            count, link.hash, wanted
        ):
            return broken

        previous = link.hash

    return _find_wrong_end(count, previous, heads, ends)


def _find_bad_link(count: int, previous: str, link: ChainLink) -> ChainBreak | None:
    position = link.entry.position
    if position > count:
        return ChainBreak(count, f"is missing: entry {position} follows entry {count - 1}")
    if position < count:
        return ChainBreak(position, "appears twice, or out of order")

    if compute_entry_hash(previous, link.entry) != link.hash:
        return ChainBreak(
            count, "was changed: its hash does not fit its fields and the entry before"
        )

    return None


def _find_missed_head(
    count: int, found: str, wanted: dict[int, list[ChainHead]]
) -> ChainBreak | None:
    for head in wanted.get(count, ()):
        if head.hash != found:
            return ChainBreak(
                count, f"is not the one that was written: its hash differs from {head.kept_in}"
            )
    return None


def _find_wrong_end(
    count: int, found: str, heads: Sequence[ChainHead], ends: Sequence[ChainHead]
) -> ChainBreak | None:
    furthest = max(heads, key=lambda head: head.entries, default=ChainHead(0, "", "the origin"))
    if furthest.entries > count:
        return ChainBreak(
            count + 1,
            f"is missing: {furthest.kept_in} covers {furthest.entries} entries, {count} are left",
        )

    if not ends or any(head.entries == count and head.hash == found for head in ends):
        return None
    return ChainBreak(
        furthest.entries + 1, f"was added: {furthest.kept_in} ends at entry {furthest.entries}"
    )
