"""The stream writer: the same bytes as `to_xml`, whatever the size and wherever the blocks end."""

from __future__ import annotations

import io
import os
import tracemalloc
from pathlib import Path

import pytest

from phasegate.core.prompt.document import ContextItem, ItemType, UnifiedPrompt
from phasegate.core.prompt.hidden_characters import HiddenCharacter
from phasegate.errors import UnreadableFile
from phasegate.files.block_reader import BLOCK_BYTES
from phasegate.prompts.stream import (
    MAX_BUFFERED_BYTES,
    MAX_HIDDEN_PER_ITEM,
    FileSource,
    PromptParts,
    write_prompt_xml,
)

LARGE = MAX_BUFFERED_BYTES + 10 * BLOCK_BYTES
ENDINGS = ["é", "中", "👩", "<", "&amp;", "\r\n", "\\u{", "\x00", "]]>", "\ufffe"]


def written(path: Path) -> tuple[bytes, list[HiddenCharacter]]:
    out = io.BytesIO()
    hidden = write_prompt_xml(
        PromptParts("system", [FileSource(ItemType.FILE, "f", path)], "go"), out
    )
    return out.getvalue(), hidden


def expected(raw: bytes) -> bytes:
    item = ContextItem(ItemType.FILE, "f", raw.decode("utf-8", "surrogateescape"))
    return UnifiedPrompt("system", [item], "go").to_xml().encode()


@pytest.mark.demand("P2.e", "P3.a")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("tail", ["", "\x07"], ids=["plain", "spelled"])
def test_a_block_may_end_anywhere(tmp_path: Path, ending: str, tail: str) -> None:
    raw = ending.encode()
    for before in range(len(raw) + 1):
        content = b"a" * (BLOCK_BYTES - before) + raw + b"b" * 10 + tail.encode()
        (tmp_path / "f").write_bytes(content)
        assert written(tmp_path / "f")[0] == expected(content)


@pytest.mark.demand("P2.e")
@pytest.mark.parametrize(
    "broken", [b"\xc3", b"\xe2\x82", b"\xf0\x9f\x91", b"\xff", b"\x80\x80\x80\x80", b"\xe2\x82A"]
)
def test_a_broken_character_at_the_border_or_the_end_comes_back_exactly(
    tmp_path: Path, broken: bytes
) -> None:
    for content in (
        broken,
        b"a" * (BLOCK_BYTES - 1) + broken,
        b"a" * (BLOCK_BYTES - 1) + broken + b"z",
    ):
        (tmp_path / "f").write_bytes(content)
        xml = written(tmp_path / "f")[0]
        assert xml == expected(content)
        read = UnifiedPrompt.from_xml(xml.decode()).context[0].content
        assert read.encode("utf-8", "surrogateescape") == content


@pytest.mark.demand("P2.e", "P3.a")
@pytest.mark.parametrize("last", [b"", b"\xff", b"\x00", "\u202e".encode()])
def test_a_file_that_is_too_large_to_hold_gives_the_same_bytes(tmp_path: Path, last: bytes) -> None:
    content = ("if a < b && c > d: # naïve\r\n" * (LARGE // 29)).encode() + last
    assert len(content) > MAX_BUFFERED_BYTES
    (tmp_path / "f").write_bytes(content)
    assert written(tmp_path / "f")[0] == expected(content)


def test_an_empty_file_is_an_empty_element(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert b"<file path='f'></file>" in written(tmp_path / "f")[0]


@pytest.mark.demand("P4.c")
@pytest.mark.parametrize("size", [100, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("tail", ["", "\x00"], ids=["plain", "spelled"])
def test_hidden_characters_are_found_at_their_line(tmp_path: Path, size: int, tail: str) -> None:
    lines = size // 50
    text = ("x" * 49 + "\n") * lines + "é\n\u202e\n" + "\u200b" * 50 + tail
    (tmp_path / "f").write_text(text, encoding="utf-8", newline="")
    hidden = written(tmp_path / "f")[1]
    assert hidden[0] == HiddenCharacter("f", "U+202E RIGHT-TO-LEFT OVERRIDE", lines + 2)
    assert hidden[1] == HiddenCharacter("f", "U+200B ZERO WIDTH SPACE", lines + 3)
    assert len(hidden) == MAX_HIDDEN_PER_ITEM


@pytest.mark.demand("P2.d")
def test_a_large_file_that_is_spoilt_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * LARGE)

    class Meddler(io.BytesIO):
        def write(self, data) -> int:  # type: ignore[no-untyped-def]
            if data.startswith(b"<file"):
                with path.open("r+b") as file:
                    file.write(b"\x00")
            return super().write(data)

    with pytest.raises(UnreadableFile, match="changed while it was read"):
        write_prompt_xml(PromptParts(None, [FileSource(ItemType.FILE, "f", path)], "x"), Meddler())


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    def peak(size: int) -> int:
        path = tmp_path / str(size)
        path.write_bytes(b"some text, escaped: < > &\n" * (size // 26))
        tracemalloc.start()
        with Path(os.devnull).open("wb") as out:
            write_prompt_xml(PromptParts(None, [FileSource(ItemType.FILE, "f", path)], "x"), out)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(60_000_000) < 2 * peak(6_000_000) < 30_000_000


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, what: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnreadableFile, match=f"cannot read .*{what}"):
        written(tmp_path / what)
