"""The ends of a job's pipes that we hold: read in large pieces, written without ever waiting."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from phasegate.cage.stream import Captured, Keeper, Log

MIB = 1024**2
_CHUNK_BYTES = 256 * 1024
_SET_PIPE_SIZE = 1031


def open_pipe() -> tuple[int, int]:
    """A pipe as large as the kernel gives one: fewer turns of ours for each megabyte."""
    readable, writable = os.pipe()
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(writable, _SET_PIPE_SIZE, MIB)
    return readable, writable


class Inbox:
    """What comes out of a job on one stream: handed on, logged, and kept in bounded memory."""

    def __init__(self, descriptor: int, keep_bytes: int, log: Log, hand_on: Callable[[bytes], None] | None) -> None:
        self._descriptor = descriptor
        self._keeper = Keeper(keep_bytes)
        self._log = log
        self._hand_on = hand_on
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Take what is there; False when nothing will come any more."""
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        self._take(chunk)
        return True

    def drain(self, most_bytes: int = 4 * MIB) -> None:
        """Take what is left in the pipe, and no more than a pipe can hold: a stranger might still write to it."""
        with suppress(BlockingIOError):
            while most_bytes > 0 and (chunk := os.read(self._descriptor, _CHUNK_BYTES)):
                self._take(chunk)
                most_bytes -= len(chunk)

    def captured(self) -> Captured:
        return self._keeper.captured(self._log.cut)

    def _take(self, chunk: bytes) -> None:
        self._keeper.feed(chunk)
        self._log.feed(chunk)
        if self._hand_on is not None:
            self._hand_on(chunk)


class Outbox:
    """What goes into a job: a queue that is written as far as the reader reads (E05)."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self._queue: deque[memoryview] = deque()
        self._closing = False
        os.set_blocking(descriptor, False)

    def put(self, data: bytes) -> None:
        if data and self.descriptor is not None:
            self._queue.append(memoryview(data))

    @property
    def has_more(self) -> bool:
        return bool(self._queue)

    def close_when_empty(self) -> None:
        self._closing = True
        if not self._queue:
            self.close()

    def flush(self) -> bool:
        """Write what can be written now; False when that was all. A reader that has gone takes the rest with it."""
        try:
            while self._queue and self.descriptor is not None:
                written = os.write(self.descriptor, self._queue[0])
                self._queue[0] = self._queue[0][written:]
                if not self._queue[0]:
                    self._queue.popleft()
        except BlockingIOError:
            return True
        except OSError:
            self.close()
        if self._closing:
            self.close()
        return False

    def close(self) -> None:
        self._queue.clear()
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
