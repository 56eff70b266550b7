"""A prompt written straight from files to a stream.

Any size, little memory, the same bytes as `to_xml`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from phasegate.core.prompt.document import (
    ContextItem,
    ItemType,
    render_element,
    render_end_tag,
    render_head,
    render_start_tag,
    render_tail,
)
from phasegate.core.prompt.hidden_characters import (
    HiddenCharacter,
    find_hidden_characters,
    find_hidden_in_item,
    may_contain_hidden,
)
from phasegate.core.text.xml import encode_forbidden, escape_text, escape_utf8, is_xml_safe_utf8
from phasegate.errors import UnreadableFile
from phasegate.files.block_reader import OpenFile, regular_file_reader

# Up to here a file is read once; a larger one is looked through first and read again
MAX_BUFFERED_BYTES = 1024 * 1024
# Per item
MAX_HIDDEN_PER_ITEM = 20
_CHUNKS_PER_WRITE = 32


class FileSource(NamedTuple):
    """A file that goes into the prompt as it lies on the disk."""

    type: ItemType
    name: str
    path: Path


def _no_notes(_: Sequence[HiddenCharacter]) -> Sequence[ContextItem]:
    return ()


class PromptParts(NamedTuple):
    """A prompt whose files are still on the disk.

    `notes` says what was seen in them, once they have gone by.
    """

    system_prompt: str | None
    context: Sequence[ContextItem | FileSource]
    instructions: str
    make_notes: Callable[[Sequence[HiddenCharacter]], Sequence[ContextItem]] = _no_notes


def write_prompt_xml(parts: PromptParts, out: BinaryIO) -> list[HiddenCharacter]:
    """Write the XML of a prompt, and return the hidden characters of its context.

    `out` should have a large buffer.
    """
    for part in parts.context:
        if isinstance(part, FileSource):
            with regular_file_reader(part.path):
                # What cannot be read is said before anything is written
                pass

    out.write(render_head(parts.system_prompt).encode())
    hidden: list[HiddenCharacter] = []

    for part in parts.context:
        if isinstance(part, FileSource):
            hidden += islice(
                chain(
                    find_hidden_in_item(ContextItem(part.type, part.name), MAX_HIDDEN_PER_ITEM),
                    _write_file(part, out),
                ),
                MAX_HIDDEN_PER_ITEM,
            )
        else:
            out.write(render_element(part.type, part.content, part.name).encode())
            hidden += find_hidden_in_item(part, MAX_HIDDEN_PER_ITEM)

    for item in parts.make_notes(hidden):
        out.write(render_element(item.type, item.content, item.name).encode())

    out.write(render_tail(parts.instructions).encode())
    return hidden


def _write_file(source: FileSource, out: BinaryIO) -> list[HiddenCharacter]:
    with regular_file_reader(source.path) as file:
        if file.size <= MAX_BUFFERED_BYTES:
            write = _write_buffered
        else:
            write = _write_streamed

        hidden = write(source, file, out)
        out.write(render_end_tag(source.type).encode())
        return hidden


def _write_buffered(source: FileSource, file: OpenFile, out: BinaryIO) -> list[HiddenCharacter]:
    """The start tag depends on the whole content, so the escaped content waits for it."""
    held: list[bytes] = []
    hidden: list[HiddenCharacter] = []

    for chunk in _iter_character_chunks(file):
        if not _is_plain(chunk):
            return _write_encoded(source, file, out)
        if may_contain_hidden(chunk):
            hidden += _find_hidden_in_chunk(source, chunk, 1 + _count_line_ends(held))

        held.append(escape_utf8(chunk))

    out.write(render_start_tag(source.type, source.name, True).encode())
    _write_joined(held, out)

    return hidden[:MAX_HIDDEN_PER_ITEM]


def _write_streamed(source: FileSource, file: OpenFile, out: BinaryIO) -> list[HiddenCharacter]:
    """The same without holding it.

    Looked through once, then read again, and once more looked through if it changed.
    """
    suspicious = False
    for chunk in _iter_character_chunks(file):
        if not _is_plain(chunk):
            return _write_encoded(source, file, out)

        suspicious = suspicious or may_contain_hidden(chunk)

    out.write(render_start_tag(source.type, source.name, True).encode())
    chunks = _iter_character_chunks(file)
    while batch := [escape_utf8(chunk) for chunk in islice(chunks, _CHUNKS_PER_WRITE)]:
        _write_joined(batch, out)

    if file.has_changed() and not all(map(_is_plain, _iter_character_chunks(file))):
        raise UnreadableFile(
            f"{source.path} changed while it was read", "try again when nothing writes it"
        )

    if suspicious:
        return list(islice(_find_hidden_in_file(source, file), MAX_HIDDEN_PER_ITEM))

    return []


def _find_hidden_in_file(source: FileSource, file: OpenFile) -> Iterator[HiddenCharacter]:
    line = 1
    for chunk in _iter_character_chunks(file):
        if may_contain_hidden(chunk):
            yield from _find_hidden_in_chunk(source, chunk, line)
        line += chunk.count(b"\n")


def _write_joined(chunks: Sequence[bytes], out: BinaryIO) -> None:
    """Few large writes: each small one costs the kernel two torn pages (measured.

    A quarter of the whole).
    """
    for start in range(0, len(chunks), _CHUNKS_PER_WRITE):
        out.write(b"".join(chunks[start : start + _CHUNKS_PER_WRITE]))


def _write_encoded(source: FileSource, file: OpenFile, out: BinaryIO) -> list[HiddenCharacter]:
    out.write(render_start_tag(source.type, source.name, False).encode())
    hidden: list[HiddenCharacter] = []
    line = 1

    for text in _iter_decoded_text(file):
        out.write(escape_text(encode_forbidden(text)).encode())
        if len(hidden) < MAX_HIDDEN_PER_ITEM:
            hidden += islice(find_hidden_characters(source.name, text, line), MAX_HIDDEN_PER_ITEM)

        line += text.count("\n")

    return hidden[:MAX_HIDDEN_PER_ITEM]


def _iter_decoded_text(file: OpenFile) -> Iterator[str]:
    r"""The content as text, each invalid byte as a surrogate, in parts that do not end inside a
    `\u{`.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    carry = ""
    for block in file.read_blocks():
        text = carry + decoder.decode(block)
        carry = next((end for end in ("\\u", "\\") if text.endswith(end)), "")
        yield text.removesuffix(carry)

    yield carry + decoder.decode(b"", final=True)


def _is_plain(chunk: bytes) -> bool:
    """Whether a chunk is valid UTF-8 of which XML can carry every character."""
    try:
        return (chunk.isascii() or bool(chunk.decode())) and is_xml_safe_utf8(chunk)
    except UnicodeDecodeError:
        return False


def _iter_character_chunks(file: OpenFile) -> Iterator[bytes]:
    """The content in chunks that do not end inside a character."""
    carry = b""

    for block in file.read_blocks():
        chunk = carry + block if carry else block
        unfinished = _count_unfinished_bytes(chunk)
        carry = chunk[len(chunk) - unfinished :]
        yield chunk[: len(chunk) - unfinished] if unfinished else chunk

    if carry:
        yield carry


def _count_unfinished_bytes(chunk: bytes) -> int:
    """How many bytes at the end are the start of a longer UTF-8 sequence."""
    for count in range(1, min(3, len(chunk)) + 1):
        byte = chunk[-count]
        if byte >= 0xC0:
            if count < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4):
                return count
            return 0

        if byte < 0x80:
            return 0

    return 0


def _find_hidden_in_chunk(
    source: FileSource, chunk: bytes, first_line: int
) -> Iterator[HiddenCharacter]:
    return islice(
        find_hidden_characters(source.name, chunk.decode(), first_line), MAX_HIDDEN_PER_ITEM
    )


def _count_line_ends(chunks: Sequence[bytes]) -> int:
    return sum(chunk.count(b"\n") for chunk in chunks)
