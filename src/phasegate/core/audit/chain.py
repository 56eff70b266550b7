"""The hash chain over all recorded state changes.

The hash of an entry is SHA-256 over the previous hash and all fields of the entry. Each field is
preceded by its length, so that no two different entries have the same encoding. The chain alone
only proves that it is consistent. Chain heads, kept where the writer of the journal cannot change
them, prove that it is the chain that was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

_CHAIN_DOMAIN = b"phasegate domain chain 1"


class ChainEntry(NamedTuple):
    """One state change, with its position in the chain and its number in the feature's journal."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: bytes


class ChainLink(NamedTuple):
    """An entry with its stored hash."""

    entry: ChainEntry
    hash: str


class ChainHead(NamedTuple):
    """The hash after a number of entries, and where this head is stored."""

    entries: int
    hash: str
    kept_in: str = ""


class ChainBreak(NamedTuple):
    """The first entry or line that was changed after it was written, and the reason."""

    position: int
    why: str


def encode_fields(fields: Iterable[bytes]) -> bytes:
    """Encode fields unambiguously: each field follows its length in eight bytes."""
    return b"".join(len(field).to_bytes(8, "big") + field for field in fields)


def chain_origin_hash(store_id: str) -> str:
    """Return the hash before the first entry; it differs between repositories."""
    return sha256(encode_fields((_CHAIN_DOMAIN, store_id.encode()))).hexdigest()


def compute_entry_hash(previous: str, entry: ChainEntry) -> str:
    """Return the hash that links an entry to all previous ones."""
    return sha256(encode_chain_entry(previous, entry)).hexdigest()


def encode_chain_entry(previous: str, entry: ChainEntry) -> bytes:
    """Encode an entry with the hash of the previous one, unambiguously."""
    position, feature, seq, ts, kind, payload = entry
    texts = (previous, str(position), feature, str(seq), ts, kind)
    encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    return encode_fields((_CHAIN_DOMAIN, *encoded, payload))


def make_links(
    head: ChainHead, feature: str, seq: int, ts: str, events: Iterable[tuple[str, bytes]]
) -> list[ChainLink]:
    """Return the entries that continue a chain after its head.

    `events` are the kinds and payloads of one step of a feature, whose last event is number `seq`.
    """
    links: list[ChainLink] = []
    previous = head.hash

    for number, (kind, payload) in enumerate(events, start=1):
        entry = ChainEntry(
            position=head.entries + number,
            feature=feature,
            seq=seq + number,
            ts=ts,
            kind=kind,
            payload=payload,
        )
        previous = compute_entry_hash(previous, entry)
        links.append(ChainLink(entry, previous))

    return links


def find_first_break(
    start: str, links: Iterable[ChainLink], heads: Sequence[ChainHead], ends: Sequence[ChainHead]
) -> ChainBreak | None:
    """Return the first entry that differs from the written one, or None.

    The chain must pass through every one of `heads`, and end in one of `ends` (empty: the end is
    unknown).
    """
    heads_by_count: dict[int, list[ChainHead]] = {}
    for head in heads:
        heads_by_count.setdefault(head.entries, []).append(head)

    previous = start
    count = 0
    if chain_break := _find_missed_head(0, start, heads_by_count):
        return chain_break

    for link in links:
        count += 1
        chain_break = _find_bad_link(count, previous, link)
        chain_break = chain_break or _find_missed_head(count, link.hash, heads_by_count)
        if chain_break:
            return chain_break

        previous = link.hash

    return _find_wrong_end(count, previous, heads, ends)


def _find_bad_link(count: int, previous: str, link: ChainLink) -> ChainBreak | None:
    """Return the problem of one link of the chain, or None if it is valid."""
    position = link.entry.position
    if position > count:
        return ChainBreak(count, f"is missing: entry {position} follows entry {count - 1}")
    if position < count:
        return ChainBreak(position, "appears twice, or out of order")

    if compute_entry_hash(previous, link.entry) != link.hash:
        return ChainBreak(
            count, "was changed: its hash does not match its fields and the previous entry"
        )

    return None


def _find_missed_head(
    count: int, hash_: str, heads_by_count: dict[int, list[ChainHead]]
) -> ChainBreak | None:
    for head in heads_by_count.get(count, ()):
        if head.hash != hash_:
            return ChainBreak(
                count, f"is not the one that was written: its hash differs from {head.kept_in}"
            )
    return None


def _find_wrong_end(
    count: int, hash_: str, heads: Sequence[ChainHead], ends: Sequence[ChainHead]
) -> ChainBreak | None:
    """Return why the chain ends at a wrong entry, or None if it ends at a known head."""
    furthest = max(heads, key=lambda head: head.entries, default=ChainHead(0, "", "the origin"))
    if furthest.entries > count:
        return ChainBreak(
            count + 1,
            f"is missing: {furthest.kept_in} covers {furthest.entries} entries, {count} are left",
        )

    if not ends or any(head.entries == count and head.hash == hash_ for head in ends):
        return None
    return ChainBreak(
        furthest.entries + 1, f"was added: {furthest.kept_in} ends at entry {furthest.entries}"
    )
