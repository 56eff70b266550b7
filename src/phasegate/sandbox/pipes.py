"""Our ends of a job's pipes: read in large chunks, written without blocking."""

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
    """Open a pipe with a buffer of 1 MiB, so that a megabyte takes fewer reads."""
    readable, writable = os.pipe()

    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(writable, _SET_PIPE_SIZE, MIB)

    return readable, writable


def iterate_chunks(source: bytes | Path) -> Generator[bytes, None, None]:
    """Yield bytes as they are, or a file in chunks.

    A file's descriptor is never passed to a job, which could reopen it for writing through /proc.
    """
    if isinstance(source, bytes):
        yield source
        return

    with source.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


class OutputPipe:
    """One output stream of a job: redacted, logged, captured, and passed to a listener."""

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
        """Read the available output; return False at its end."""
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return True

        if not chunk:
            return False

        self._process_chunk(self._redactor.feed(chunk))
        return True

    def drain(self, max_bytes: int = 4 * MIB) -> None:
        """Read the rest of the output, at most what a pipe can hold.

        The limit is needed because another process may still write to the pipe.
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
        """Call the listener. If it fails, it is not called again and the job continues.

        The failure is reported in the outcome.
        """
        try:
            on_chunk(chunk)
        except Exception:
            _log.exception("a job output listener failed")
            self.listener_failed = True


class InputPipe:
    """The standard input of a job: chunks that are written as the program reads them."""

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
        """Write as much as the pipe takes; return False when nothing is left to write.

        The rest is dropped if the reader has closed its end.
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
        """Take the next chunk of input; return False if there is none yet."""
        while not self._current:
            chunk = next(self._initial_chunks, None)
            if chunk is None:
                if not self._queue:
                    return False

                chunk = self._queue.popleft()

            self._current = memoryview(chunk)

        return True
