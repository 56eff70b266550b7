"""A prompt written straight from files to a stream: any size, little memory, the same bytes as `to_xml`."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from phasegate.core.prompt.document import ContextItem, ItemType, closing, element, head, opening, tail
from phasegate.core.prompt.hidden_characters import Hidden, hidden_characters, hidden_in_item, may_hide
from phasegate.core.text.xml import carries_utf8, escape, escape_utf8, spell
from phasegate.errors import UnreadableFile
from phasegate.files.block_reader import OpenFile, regular_file

HELD_BYTES = 1024 * 1024  # up to here a file is read once; a larger one is looked through first and read again
HIDDEN_SHOWN = 20  # per item
_JOINED = 32


class FileSource(NamedTuple):
    """A file that goes into the prompt as it lies on the disk."""

    type: ItemType
    name: str
    path: Path


def _no_notes(_: Sequence[Hidden]) -> Sequence[ContextItem]:
    return ()


class Parts(NamedTuple):
    """A prompt whose files are still on the disk. `notes` says what was seen in them, once they have gone by."""

    system_prompt: str | None
    context: Sequence[ContextItem | FileSource]
    instructions: str
    notes: Callable[[Sequence[Hidden]], Sequence[ContextItem]] = _no_notes


def write_xml(parts: Parts, out: BinaryIO) -> list[Hidden]:
    """Write the XML of a prompt, and return the hidden characters of its context. `out` should have a large buffer."""
    for part in parts.context:
        if isinstance(part, FileSource):
            with regular_file(part.path):
                pass  # what cannot be read is said before anything is written
    out.write(head(parts.system_prompt).encode())
    hidden: list[Hidden] = []
    for part in parts.context:
        if isinstance(part, FileSource):
            hidden += islice(
                chain(hidden_in_item(ContextItem(part.type, part.name), HIDDEN_SHOWN), _write_file(part, out)),
                HIDDEN_SHOWN,
            )
        else:
            out.write(element(part.type, part.content, part.name).encode())
            hidden += hidden_in_item(part, HIDDEN_SHOWN)
    for item in parts.notes(hidden):
        out.write(element(item.type, item.content, item.name).encode())
    out.write(tail(parts.instructions).encode())
    return hidden


def _write_file(source: FileSource, out: BinaryIO) -> list[Hidden]:
    with regular_file(source.path) as file:
        write = _write_small if file.size <= HELD_BYTES else _write_large
        hidden = write(source, file, out)
        out.write(closing(source.type).encode())
        return hidden


def _write_small(source: FileSource, file: OpenFile, out: BinaryIO) -> list[Hidden]:
    """The start tag depends on the whole content, so the escaped content waits for it."""
    held: list[bytes] = []
    hidden: list[Hidden] = []
    for chunk in _whole_characters(file):
        if not _is_plain(chunk):
            return _write_spelled(source, file, out)
        if may_hide(chunk):
            hidden += _hidden_in(source, chunk, 1 + _line_ends(held))
        held.append(escape_utf8(chunk))
    out.write(opening(source.type, source.name, True).encode())
    _write_joined(held, out)
    return hidden[:HIDDEN_SHOWN]


def _write_large(source: FileSource, file: OpenFile, out: BinaryIO) -> list[Hidden]:
    """The same without holding it: looked through once, then read again, and once more looked through if it changed."""
    suspicious = False
    for chunk in _whole_characters(file):
        if not _is_plain(chunk):
            return _write_spelled(source, file, out)
        suspicious = suspicious or may_hide(chunk)
    out.write(opening(source.type, source.name, True).encode())
    chunks = _whole_characters(file)
    while batch := [escape_utf8(chunk) for chunk in islice(chunks, _JOINED)]:
        _write_joined(batch, out)
    if file.has_changed() and not all(map(_is_plain, _whole_characters(file))):
        raise UnreadableFile(f"{source.path} changed while it was read", "try again when nothing writes it")
    return list(islice(_hidden_in_large(source, file), HIDDEN_SHOWN)) if suspicious else []


def _hidden_in_large(source: FileSource, file: OpenFile) -> Iterator[Hidden]:
    line = 1
    for chunk in _whole_characters(file):
        if may_hide(chunk):
            yield from _hidden_in(source, chunk, line)
        line += chunk.count(b"\n")


def _write_joined(chunks: Sequence[bytes], out: BinaryIO) -> None:
    """Few large writes: each small one costs the kernel two torn pages (measured: a quarter of the whole)."""
    for start in range(0, len(chunks), _JOINED):
        out.write(b"".join(chunks[start : start + _JOINED]))


def _write_spelled(source: FileSource, file: OpenFile, out: BinaryIO) -> list[Hidden]:
    out.write(opening(source.type, source.name, False).encode())
    hidden: list[Hidden] = []
    line = 1
    for text in _decoded(file):
        out.write(escape(spell(text)).encode())
        if len(hidden) < HIDDEN_SHOWN:
            hidden += islice(hidden_characters(source.name, text, line), HIDDEN_SHOWN)
        line += text.count("\n")
    return hidden[:HIDDEN_SHOWN]


def _decoded(file: OpenFile) -> Iterator[str]:
    r"""The content as text, each invalid byte as a surrogate, in parts that do not end inside a `\u{`."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    carry = ""
    for block in file.blocks():
        text = carry + decoder.decode(block)
        carry = next((end for end in ("\\u", "\\") if text.endswith(end)), "")
        yield text.removesuffix(carry)
    yield carry + decoder.decode(b"", final=True)


def _is_plain(chunk: bytes) -> bool:
    """Whether a chunk is valid UTF-8 of which XML can carry every character."""
    try:
        return (chunk.isascii() or bool(chunk.decode())) and carries_utf8(chunk)
    except UnicodeDecodeError:
        return False


def _whole_characters(file: OpenFile) -> Iterator[bytes]:
    """The content in chunks that do not end inside a character."""
    carry = b""
    for block in file.blocks():
        chunk = carry + block if carry else block
        unfinished = _unfinished_bytes(chunk)
        carry = chunk[len(chunk) - unfinished :]
        yield chunk[: len(chunk) - unfinished] if unfinished else chunk
    if carry:
        yield carry


def _unfinished_bytes(chunk: bytes) -> int:
    """How many bytes at the end are the start of a longer UTF-8 sequence."""
    for count in range(1, min(3, len(chunk)) + 1):
        byte = chunk[-count]
        if byte >= 0xC0:
            return count if count < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def _hidden_in(source: FileSource, chunk: bytes, first_line: int) -> Iterator[Hidden]:
    return islice(hidden_characters(source.name, chunk.decode(), first_line), HIDDEN_SHOWN)


def _line_ends(chunks: Sequence[bytes]) -> int:
    return sum(chunk.count(b"\n") for chunk in chunks)
