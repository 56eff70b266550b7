"""Lines of a job's trail: the fields of the interface specification, one line each, bound to the line before."""

from __future__ import annotations

import json

import pytest

from phasegate.core.audit.trail import (
    Action,
    Source,
    TrailEvent,
    chain_entry,
    encode_entry,
    scan_trail,
    trail_origin_hash,
)

TS = "2026-03-01T10:15:34Z"
START = trail_origin_hash("001-login", "3a6b8c9d")
SEED_EXAMPLES = [
    ("read_spec", {"path": "spec.md", "hash": "0x1a2b"}),
    ("write_file", {"path": "src/auth/models.rs", "lines": 87}),
    ("run_tests", {"command": "cargo test", "exit_code": 0, "duration_ms": 4230}),
    ("commit", {"sha": "abc123", "message": "WP01: Implement User and Session models"}),
    ("exit", {"code": 0, "duration_total_s": 162}),
]


def done(action: str = "exit", **fields: object) -> TrailEvent:
    return TrailEvent("agent:claude-code", Action(action), Source.OBSERVED, fields)  # type: ignore[arg-type]


def trail(length: int) -> list[bytes]:
    lines, previous = [], START
    for number in range(length):
        line, previous = chain_entry(
            previous,
            encode_entry(TS, "3a6b8c9d", done("write_file", path=f"{number}.py", lines=number)),
        )
        lines.append(line)
    return lines


@pytest.mark.demand("D13.a", "D13.b")
@pytest.mark.parametrize(
    ("action", "fields"), SEED_EXAMPLES, ids=[action for action, _ in SEED_EXAMPLES]
)
def test_a_line_has_the_fields_of_the_specification_and_its_source(
    action: str, fields: dict[str, object]
) -> None:
    record = json.loads(
        chain_entry(START, encode_entry(TS, "3a6b8c9d", done(action, **fields))).line
    )
    expected = {
        "ts": TS,
        "actor": "agent:claude-code",
        "job": "3a6b8c9d",
        "action": action,
        **fields,
    }
    assert list(record)[:4] == ["ts", "actor", "job", "action"]
    assert {name: record[name] for name in expected} == expected
    assert set(record) - set(expected) == {"source", "prev", "entry_hash"}
    assert record["source"] == "observed"
    assert {source.value for source in Source} == {"observed", "reported", "derived", "given"}


@pytest.mark.demand("D13.a")
def test_a_field_that_holds_a_newline_and_a_forged_line_stays_one_line() -> None:
    forged = 'x"}\n' + trail(1)[0].decode()
    line, digest = chain_entry(START, encode_entry(TS, "3a6b8c9d", done("commit", message=forged)))
    assert "\n".join(["{", forged, "}"]).count("\n") > 1, (
        "control: put in raw, it would be several lines"
    )
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["message"] == forged
    assert scan_trail(line, START) == (1, len(line), digest, 0, None)


@pytest.mark.parametrize("text", ["\x00\x1b[2J\r", "\u2028\u2029\x85", "a\udc80b", "é\U0001f600"])
def test_any_text_makes_one_readable_line(text: str) -> None:
    line = chain_entry(
        START, encode_entry(TS, "3a6b8c9d", done("commit", message=text, files=[text]))
    ).line
    assert len(line.decode("ascii").splitlines()) == 1
    assert not any(byte < 0x20 for byte in line[:-1])
    kept = json.loads(line)["message"]
    assert kept == text or kept == text.encode("utf-8", "backslashreplace").decode()


def test_a_field_cannot_stand_for_one_that_every_line_has() -> None:
    for name in ("ts", "actor", "job", "action", "agent", "source", "prev", "entry_hash"):
        with pytest.raises(ValueError, match=name):
            chain_entry(
                START,
                encode_entry(
                    TS, "3a6b8c9d", TrailEvent("a", Action.EXIT, Source.OBSERVED, {name: "forged"})
                ),
            )


@pytest.mark.demand("D13.h", "D13.i")
def test_the_first_bad_line_is_named() -> None:
    lines = trail(5)
    cases = {
        3: [*lines[:2], lines[2].replace(b"2.py", b"9.py"), *lines[3:]],
        2: [lines[0], *lines[2:]],
        4: [*lines[:3], lines[4], lines[3]],
        1: [b"{}\n", *lines],
    }
    for position, damaged in cases.items():
        broken = scan_trail(b"".join(damaged), START).broken
        assert broken is not None
        assert broken.position == position


def test_an_unfinished_last_line_is_torn_and_no_break() -> None:
    data = b"".join(trail(3))
    reading = scan_trail(data[:-10], START)
    assert reading.broken is None
    assert reading.lines == 2
    assert reading.partial_bytes > 0


def test_a_trail_does_not_pass_for_another_jobs() -> None:
    data = b"".join(trail(2))
    assert scan_trail(data, START).broken is None
    assert scan_trail(data, trail_origin_hash("001-login", "another")).broken is not None
    assert scan_trail(data, trail_origin_hash("002-other", "3a6b8c9d")).broken is not None
