"""Output that comes in chunks: bounded, and the same wherever the chunks part."""

from __future__ import annotations

import tracemalloc

import pytest

from phasegate.rules.answer_buffer import AnswerBuffer

TEXT = "é\x1b[32m語\x1b]0;t\x07😀\r\n<thought>x</thought>\r\n<review>PASS</review>\r\n"


def fed(data: bytes, size: int, limit: int = 1 << 20) -> AnswerBuffer:
    buffer = AnswerBuffer(limit)
    for start in range(0, len(data), size):
        buffer.feed(data[start : start + size])
    return buffer


@pytest.mark.demand("P6.i")
def test_it_makes_no_difference_where_the_chunks_part() -> None:
    data = TEXT.encode() + b"\xff\xc3\n"
    whole = fed(data, len(data))
    for cut in range(len(data) + 1):
        buffer = AnswerBuffer()
        buffer.feed(data[:cut])
        buffer.feed(data[cut:])
        assert buffer.parse("review") == whole.parse("review")
    assert fed(data, 1).text() == whole.text()


def test_what_fits_is_kept_whole() -> None:
    buffer = fed(TEXT.encode(), 3, limit=len(TEXT.encode()) + 1)
    assert (buffer.text(), buffer.truncated) == (TEXT, False)
    assert buffer.parse("review").verdict == "PASS"


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert fed(b"a\xff\xc3(b", 1).text() == "a\ufffd\ufffd(b"


@pytest.mark.demand("P6.k")
@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
def test_what_does_not_fit_loses_its_middle_and_is_never_a_pass(size: int) -> None:
    data = b"head\n" + b"x" * 60 + b"\n" + b"y\n" * 5000 + b"tail\n<review>PASS</review>\n"
    buffer = fed(data, size, limit=200)
    text = buffer.text()
    assert buffer.truncated
    assert text.startswith("head\n")
    assert text.endswith("tail\n<review>PASS</review>\n")
    assert "bytes were dropped here]" in text
    assert len(text) < 300
    assert buffer.parse("review").error == "CutOff"
    assert text == fed(data, 13, limit=200).text()


def test_a_no_at_the_end_of_too_much_output_still_counts() -> None:
    data = b"noise\n" * 1000 + b"<review>MAJOR_ISSUES</review>\n"
    assert fed(data, 50, limit=500).parse("review").verdict == "MAJOR_ISSUES"


def test_half_a_line_does_not_look_like_a_whole_one() -> None:
    line = b"I do not say <review>NEEDS_CHANGES</review>\n"
    for limit in range(2, 120):
        assert fed(b"z" * 200 + line, 10, limit).parse("review").verdict is None


def test_memory_stays_bounded() -> None:
    chunk = b"x" * 65_536 + b"\n"
    buffer = AnswerBuffer(1 << 20)
    tracemalloc.start()
    for _ in range(500):
        buffer.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
