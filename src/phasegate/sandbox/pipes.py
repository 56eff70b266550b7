"""The ends of a job's pipes that we hold: read in large pieces, written without ever waiting."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from pathlib import Path

from phasegate.sandbox.bounded_output import BoundedLog, CapturedOutput, OutputBuffer
from phasegate.sandbox.redact import Redactor

MIB = 1024**2
_CHUNK_BYTES = 256 * 1024
_SET_PIPE_SIZE = 1031
_log = logging.getLogger(__name__)


def open_pipe() -> tuple[int, int]:
    """A pipe as large as the kernel gives one: fewer turns of ours for each megabyte."""
    readable, writable = os.pipe()

    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(writable, _SET_PIPE_SIZE, MIB)

    return readable, writable


def iterate_chunks(source: bytes | Path) -> Generator[bytes, None, None]:
    """Bytes as they are, or a file bit by bit.

    A file's own descriptor is never given to a job: through /proc it could be opened again from
    inside, for writing.
    """
    if isinstance(source, bytes):
        yield source
        return

    with source.open("rb", buffering=0) as file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece


class OutputPipe:
    """What comes out of a job on one stream: handed on, logged, and kept in bounded memory."""

    def __init__(
        self,
        descriptor: int,
        max_kept_bytes: int,
        log: BoundedLog,
        on_chunk: Callable[[bytes], None] | None,
        secrets: Iterable[bytes] = (),
    ) -> None:
        self._descriptor = descriptor
        self._redactor = Redactor(secrets)
        self._buffer = OutputBuffer(max_kept_bytes)
        self._log = log
        self._on_chunk = on_chunk
        self.listener_failed = False
        os.set_blocking(descriptor, False)

    def read_available(self) -> bool:
        """Take what is there; False when nothing will come any more."""
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return True

        if not chunk:
            return False

        self._process_chunk(self._redactor.feed(chunk))
        return True

    def drain(self, max_bytes: int = 4 * MIB) -> None:
        """Take what is left in the pipe, and no more than a pipe can hold.

        A stranger might still write to it.
        """
        with suppress(BlockingIOError):
            while max_bytes > 0 and (chunk := os.read(self._descriptor, _CHUNK_BYTES)):
                self._process_chunk(self._redactor.feed(chunk))
                max_bytes -= len(chunk)

        self._process_chunk(self._redactor.flush())

    def get_captured(self) -> CapturedOutput:
        return self._buffer.get_captured()

    def _process_chunk(self, chunk: bytes) -> None:
        if not chunk:
            return
        self._buffer.feed(chunk)
        self._log.feed(chunk)
        if self._on_chunk is not None and not self.listener_failed:
            self._notify_listener(chunk, self._on_chunk)

    def _notify_listener(self, chunk: bytes, on_chunk: Callable[[bytes], None]) -> None:
        """A listener that fails is not called again, and the job goes on.

        Who asks for the outcome is told.
        """
        try:
            on_chunk(chunk)
        except Exception:
            _log.exception("what listens to a job's output has failed")
            self.listener_failed = True


class InputPipe:
    """What goes into a job: pieces that are written as far as the reader reads."""

    def __init__(self, descriptor: int, initial_chunks: Iterable[bytes]) -> None:
        self.descriptor: int | None = descriptor
        self._initial_chunks = iter(initial_chunks)
        self._queue: deque[bytes] = deque()
        self._current = memoryview(b"")
        self._closing = False
        self.has_pending = True
        os.set_blocking(descriptor, False)

    def queue_data(self, data: bytes) -> None:
        self._queue.append(data)
        self.has_pending = True

    def close_when_empty(self) -> None:
        self._closing = True
        if not self.has_pending:
            self.close()

    def flush(self) -> bool:
        """Write what can be written now; False when that was all.

        A reader that has gone takes the rest with it.
        """
        try:
            while self.descriptor is not None and self._refill():
                self._current = self._current[os.write(self.descriptor, self._current) :]
        except BlockingIOError:
            return True
        except OSError:
            self.close()

        self.has_pending = False
        if self._closing:
            self.close()

        return False

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _refill(self) -> bool:
        while not self._current:
            piece = next(self._initial_chunks, None)
            if piece is None:
                if not self._queue:
                    return False

                piece = self._queue.popleft()

            self._current = memoryview(piece)

        return True
