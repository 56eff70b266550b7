"""Output of unknown size, kept in bounded memory: the beginning, the end, and how much there was."""

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
    """What is known of one stream after the job: all of it, or its two ends when `cut`."""

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
    """Keeps at most `limit` bytes of a stream, its head and its tail, and hashes all of it."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max(1, max_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._hash = sha256()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._hash.update(chunk)
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]

        self._tail += chunk
        # Dropped in large steps: each byte is moved at most twice
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def get_captured(self) -> CapturedOutput:
        tail = bytes(self._tail[-self._half :])
        return CapturedOutput(bytes(self._head), tail, self._size, self._hash.hexdigest())


class BoundedLog:
    """A file that takes at most `limit` bytes."""

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
    """Cuts chunks into lines.

    One that is longer than `limit` is skipped and counted: half a line means nothing.
    """

    def __init__(self, max_line_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_line_bytes = max_line_bytes
        self._held = bytearray()
        self._too_long = False
        self.skipped_lines = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their line feeds."""
        first, found, rest = chunk.partition(b"\n")
        self._hold(first)
        if not found:
            return []

        lines = rest.split(b"\n")
        last = lines.pop()
        if len(rest) > self._max_line_bytes:
            short = [line for line in lines if len(line) <= self._max_line_bytes]
        else:
            short = lines

        self.skipped_lines += len(lines) - len(short)
        whole = [*self.flush(), *short]
        self._hold(last)

        return whole

    def flush(self) -> list[bytes]:
        """What came after the last line feed, unless it is too long."""
        if self._too_long:
            line = []
        else:
            line = [bytes(self._held)]

        self.skipped_lines += self._too_long
        self._too_long = False
        self._held.clear()

        return line

    def _hold(self, part: bytes) -> None:
        self._too_long = self._too_long or len(self._held) + len(part) > self._max_line_bytes
        if self._too_long:
            self._held.clear()
        else:
            self._held += part
