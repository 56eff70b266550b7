"""Capture output of unknown size in bounded memory: its beginning, its end and its total size."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import NamedTuple


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class CapturedOutput(NamedTuple):
    """The captured output of one stream: all of it, or its head and tail when `truncated`."""

    head: bytes
    tail: bytes
    size: int
    sha256: str

    @property
    def truncated(self) -> bool:
        return self.size > len(self.head) + len(self.tail)

    @property
    def data(self) -> bytes:
        if not self.truncated:
            return self.head + self.tail
        left_out = self.size - len(self.head) - len(self.tail)
        return b"%b\n[... %d bytes left out ...]\n%b" % (self.head, left_out, self.tail)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class OutputBuffer:
    """A buffer for the head and tail of a stream, at most `max_bytes`; hashes the whole stream."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max(1, max_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._hash = sha256()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Add a chunk, and keep only the head and the tail of the output."""
        self._size += len(chunk)
        self._hash.update(chunk)
        free_bytes = self._half - len(self._head)
        if free_bytes > 0:
            self._head += chunk[:free_bytes]
            chunk = chunk[free_bytes:]

        self._tail += chunk
        # Drop old bytes in large steps, so that each byte is moved at most twice.
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def get_captured(self) -> CapturedOutput:
        tail = bytes(self._tail[-self._half :])
        return CapturedOutput(bytes(self._head), tail, self._size, self._hash.hexdigest())


class BoundedLog:
    """A log file of at most `max_bytes`; output beyond that is discarded."""

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        self._file = path.open("wb", buffering=0) if path else None
        self._bytes_left = max_bytes

    def feed(self, chunk: bytes) -> None:
        if self._file is None:
            return
        if self._bytes_left > 0:
            self._file.write(chunk[: self._bytes_left])
            self._bytes_left -= len(chunk)

    def __enter__(self) -> BoundedLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()


class LineSplitter:
    """A splitter of chunks into lines.

    Lines longer than `max_line_bytes` are skipped and counted: half a line cannot be parsed.
    """

    def __init__(self, max_line_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_line_bytes = max_line_bytes
        self._held = bytearray()
        self._too_long = False
        self.skipped_lines = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their line feeds."""
        first, line_feed, rest = chunk.partition(b"\n")
        self._hold(first)
        if not line_feed:
            return []

        lines = rest.split(b"\n")
        last = lines.pop()
        short = lines
        if len(rest) > self._max_line_bytes:
            short = [line for line in lines if len(line) <= self._max_line_bytes]

        self.skipped_lines += len(lines) - len(short)
        complete = [*self.flush(), *short]
        self._hold(last)

        return complete

    def flush(self) -> list[bytes]:
        """Return the held bytes as a line, which may be empty; nothing if the line is too long."""
        lines = []
        if self._too_long:
            self.skipped_lines += 1
        else:
            lines = [bytes(self._held)]

        self._too_long = False
        self._held.clear()

        return lines

    def _hold(self, part: bytes) -> None:
        self._too_long = self._too_long or len(self._held) + len(part) > self._max_line_bytes
        if self._too_long:
            self._held.clear()
        else:
            self._held += part
