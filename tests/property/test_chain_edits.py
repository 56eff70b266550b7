"""Whatever is done to a chain or a trail, once, is found."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.audit.chain import (
    ChainEntry,
    ChainHead,
    ChainLink,
    chain_origin_hash,
    compute_entry_hash,
    find_first_break,
)
from phasegate.core.audit.trail import (
    Action,
    Source,
    TrailEvent,
    chain_entry,
    encode_entry,
    scan_trail,
)
from phasegate.core.audit.trail import trail_origin_hash as trail_origin

START = chain_origin_hash("store")
ENTRIES = st.lists(
    st.tuples(
        st.text(max_size=5),
        st.integers(0, 9),
        st.text(max_size=5),
        st.text(max_size=5),
        st.binary(max_size=8),
    ),
    min_size=1,
    max_size=8,
)
FIELDS = st.dictionaries(
    st.text(max_size=6).map(lambda name: f"x{name}"),
    st.one_of(st.text(max_size=20), st.integers(-(2**53), 2**53), st.booleans(), st.none()),
    max_size=4,
)


def linked(fields: list[tuple[str, int, str, str, bytes]]) -> list[ChainLink]:
    links, previous = [], START
    for position, (feature, seq, ts, kind, payload) in enumerate(fields, 1):
        entry = ChainEntry(position, feature, seq, ts, kind, payload)
        previous = compute_entry_hash(previous, entry)
        links.append(ChainLink(entry, previous))
    return links


def is_found(links: list[ChainLink], head: ChainHead) -> bool:
    return find_first_break(START, links, [head], [head]) is not None


@pytest.mark.demand("D13.e", "D13.f", "D13.h")
@given(ENTRIES, st.data())
def test_a_changed_field_is_found_and_its_entry_named(
    fields: list[tuple[str, int, str, str, bytes]], data: st.DataObject
) -> None:
    links = linked(fields)
    head = ChainHead(len(links), links[-1].hash)
    assert not is_found(links, head)
    at = data.draw(st.integers(0, len(links) - 1))
    name = data.draw(st.sampled_from(["feature", "seq", "ts", "kind", "payload"]))
    old = getattr(links[at].entry, name)
    new = data.draw(
        {str: st.text(max_size=6), int: st.integers(0, 99), bytes: st.binary(max_size=9)}[type(old)]
    )
    changed = [*links]
    changed[at] = ChainLink(links[at].entry._replace(**{name: new}), links[at].hash)
    broken = find_first_break(START, changed, [head], [head])
    assert (broken is not None) == (new != old)
    assert broken is None or broken.position == at + 1


@pytest.mark.demand("D13.h", "D13.i")
@given(ENTRIES, st.data())
def test_a_chain_rewritten_with_right_hashes_is_found_by_its_head(
    fields: list[tuple[str, int, str, str, bytes]], data: st.DataObject
) -> None:
    links = linked(fields)
    other = data.draw(ENTRIES)
    head = ChainHead(len(links), links[-1].hash)
    assert find_first_break(START, linked(other), [], []) is None, (
        "control: in itself the other chain is whole"
    )
    assert is_found(linked(other), head) == (other != fields)


@pytest.mark.demand("D13.a", "D13.h")
@given(st.lists(FIELDS, min_size=1, max_size=6), st.data())
def test_any_changed_byte_of_a_trail_is_found_and_its_line_named(
    records: list[dict[str, str | int | bool | None]], data: st.DataObject
) -> None:
    start = previous = trail_origin("f", "j")
    lines = []
    for fields in records:
        line, previous = chain_entry(
            previous,
            encode_entry("now", "j", TrailEvent("a", Action.COMMIT, Source.DERIVED, fields)),
        )
        assert line.count(b"\n") == 1
        assert json.loads(line)["action"] == "commit"
        lines.append(line)
    text = b"".join(lines)
    assert scan_trail(text, start) == (len(lines), len(text), previous, 0, None)
    at = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != text[at]))
    reading = scan_trail(text[:at] + bytes([byte]) + text[at + 1 :], start)
    line_number = text[:at].count(b"\n") + 1
    if reading.broken:
        assert reading.broken.position == line_number
    else:
        assert (reading.lines, reading.partial_bytes > 0) == (line_number - 1, True), (
            "the last line's end was changed"
        )
