"""Output of unknown size in bounded memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.sandbox.bounded_output import BoundedLog, LineSplitter, OutputBuffer

CHUNKS = st.lists(st.binary(max_size=40), max_size=30)


def kept(chunks: list[bytes], limit: int) -> OutputBuffer:
    keeper = OutputBuffer(limit)
    for chunk in chunks:
        keeper.feed(chunk)
    return keeper


@given(CHUNKS, st.integers(2, 200))
def test_what_is_kept_is_the_beginning_and_the_end_and_says_when_something_is_missing(
    chunks: list[bytes], limit: int
) -> None:
    whole = b"".join(chunks)
    captured = kept(chunks, limit).get_captured()
    assert captured.size == len(whole)
    assert captured.sha256 == hashlib.sha256(whole).hexdigest()
    assert whole.startswith(captured.head)
    assert whole.endswith(captured.tail)
    assert captured.truncated == (len(captured.head) + len(captured.tail) < len(whole))
    assert len(captured.head) + len(captured.tail) <= limit
    if len(whole) <= limit - limit % 2:
        assert not captured.truncated
        assert captured.data == whole


@pytest.mark.demand("D9.f")
def test_cut_output_says_how_much_is_missing() -> None:
    captured = kept([b"a" * 10, b"b" * 100, b"c" * 10], 20).get_captured()
    assert captured.text == "a" * 10 + "\n[... 100 bytes left out ...]\n" + "c" * 10


@given(CHUNKS, st.integers(0, 100))
def test_a_log_takes_its_limit_and_no_more(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], limit: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    with BoundedLog(path, limit) as log:
        for chunk in chunks:
            log.feed(chunk)
    whole = b"".join(chunks)
    assert path.read_bytes() == whole[:limit]


def test_without_a_file_a_log_takes_everything_and_writes_nothing(tmp_path: Path) -> None:
    with BoundedLog(None, 0) as log:
        log.feed(b"x")
    assert not [*tmp_path.iterdir()]


@given(st.lists(st.sampled_from([b"\n", b"a", b"bc\nd", b"\r\n", b""]), max_size=40))
def test_lines_are_the_same_however_the_chunks_fall(chunks: list[bytes]) -> None:
    lines = LineSplitter()
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    assert [*found, *lines.flush()] == b"".join(chunks).split(b"\n")
    assert not lines.skipped_lines


@given(CHUNKS, st.integers(1, 30))
def test_a_long_line_is_skipped_and_counted_and_the_next_one_is_whole(
    chunks: list[bytes], limit: int
) -> None:
    lines = LineSplitter(limit)
    found = [line for chunk in chunks for line in lines.feed(chunk)] + lines.flush()
    whole = b"".join(chunks).split(b"\n")
    assert found == [line for line in whole if len(line) <= limit]
    assert lines.skipped_lines == len(whole) - len(found)
