"""The domain chain: what its hashes cover, and where a break is found."""

from __future__ import annotations

import hashlib
import struct

import pytest

from phasegate.core.audit.chain import (
    ChainBreak,
    ChainEntry,
    ChainHead,
    ChainLink,
    chain_origin_hash,
    compute_entry_hash,
    encode_fields,
    find_first_break,
    make_links,
)

START = chain_origin_hash("store")


def chain(length: int) -> list[ChainLink]:
    links: list[ChainLink] = []
    previous = START
    for position in range(1, length + 1):
        entry = ChainEntry(
            position, "001-login", position, "2026-03-01T10:15:34Z", "noted", b'{"n":%d}' % position
        )
        previous = compute_entry_hash(previous, entry)
        links.append(ChainLink(entry, previous))
    return links


def head_of(links: list[ChainLink]) -> ChainHead:
    return ChainHead(len(links), links[-1].hash, "outside")


def test_the_entries_of_a_step_continue_the_chain_of_a_repository_and_that_of_a_feature() -> None:
    steps = [[("noted", b"1"), ("noted", b"2")], [("noted", b"3")]]
    ts = "2026-03-01T10:15:34Z"
    # A repository has entries of another feature before, a feature's own chain has not
    for before, seq in ((chain(3), 0), ([], 0)):
        links = [*before]
        for events in steps:
            head = head_of(links) if links else ChainHead(0, START)
            links += make_links(head, "002-other", seq + len(links) - len(before), ts, events)

        assert find_first_break(START, links, (), ()) is None
        assert [link.entry.seq for link in links[len(before) :]] == [1, 2, 3]
        changed = links[-1].entry._replace(payload=b"4")
        broken = [*links[:-1], ChainLink(changed, links[-1].hash)]
        found = find_first_break(START, broken, (), ())
        assert found is not None
        assert found.position == len(links)


@pytest.mark.demand("D13.f")
def test_the_hash_is_sha256_over_every_field_behind_its_length() -> None:
    entry = ChainEntry(7, "001-login", 3, "2026-03-01T10:15:34Z", "noted", b"{}")
    fields = [
        b"phasegate domain chain 1",
        b"ab",
        b"7",
        b"001-login",
        b"3",
        b"2026-03-01T10:15:34Z",
        b"noted",
        b"{}",
    ]
    by_hand = b"".join(struct.pack(">Q", len(field)) + field for field in fields)
    assert compute_entry_hash("ab", entry) == hashlib.sha256(by_hand).hexdigest()


@pytest.mark.demand("D13.f")
def test_moving_a_character_from_one_field_to_the_next_changes_the_encoding() -> None:
    assert b"".join([b"ab", b"c"]) == b"".join([b"a", b"bc"]), (
        "control: joined fields cannot be told apart"
    )
    assert encode_fields([b"ab", b"c"]) != encode_fields([b"a", b"bc"])


@pytest.mark.demand("D13.e", "D13.f")
@pytest.mark.parametrize(
    "change",
    [
        {"position": 9},
        {"feature": "002"},
        {"seq": 9},
        {"ts": "2027"},
        {"kind": "other"},
        {"payload": b"[]"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_is_bound(change: dict[str, object]) -> None:
    entry = chain(1)[0].entry
    assert compute_entry_hash(START, entry._replace(**change)) != compute_entry_hash(START, entry)


@pytest.mark.demand("D13.e")
def test_a_chain_as_it_was_written_has_no_break() -> None:
    links = chain(5)
    assert find_first_break(START, links, [head_of(links)], [head_of(links)]) is None
    assert find_first_break(START, [], [ChainHead(0, START)], [ChainHead(0, START)]) is None


@pytest.mark.demand("D13.h", "D13.i")
def test_the_first_bad_entry_is_named() -> None:
    links = chain(6)
    changed = [*links[:2], ChainLink(links[2].entry._replace(ts="then"), links[2].hash), *links[3:]]
    assert find_first_break(START, changed, [], []) == ChainBreak(
        3, "was changed: its hash does not match its fields and the previous entry"
    )
    assert find_first_break(START, [*links[:3], *links[4:]], [], []) == ChainBreak(
        4, "is missing: entry 5 follows entry 3"
    )
    assert find_first_break(START, [*links[:4], links[3], *links[4:]], [], []) == ChainBreak(
        4, "appears twice, or out of order"
    )


@pytest.mark.demand("D13.i")
def test_an_end_other_than_the_kept_one_is_a_break() -> None:
    links = chain(6)
    short, long = find_first_break(START, links[:4], [head_of(links)], []), chain(8)
    assert short == ChainBreak(5, "is missing: outside covers 6 entries, 4 are left")
    added = find_first_break(START, long, [head_of(links)], [head_of(links)])
    assert added == ChainBreak(7, "was added: outside ends at entry 6")
    assert find_first_break(START, long, [head_of(links)], []) is None, (
        "control: without a known end this looks whole"
    )


def test_a_chain_may_end_in_what_was_announced_before_a_crash() -> None:
    links = chain(6)
    ends = [head_of(links[:5]), head_of(links)]
    assert find_first_break(START, links[:5], [head_of(links[:5])], ends) is None
    assert find_first_break(START, links, [head_of(links[:5])], ends) is None
    assert find_first_break(START, links[:4], [head_of(links[:5])], ends) is not None


def test_chains_of_two_stores_share_no_hash() -> None:
    assert chain_origin_hash("one") != chain_origin_hash("other")
    assert find_first_break(chain_origin_hash("other"), chain(1), [], []) is not None
