"""What a run prints: progress to stderr, gates and blocks to stdout; a block is always the last thing of all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from phasegate.doors.cli.live_view import LiveView
from phasegate.doors.cli.render import printable, say
from phasegate.engine.watching import Follower, StreamEvent


class Teller:
    """Prints what happens. A block is held back until it is known whether something follows it."""

    def __init__(self, *, quiet: bool = False, view: LiveView | None = None) -> None:
        self._block = ""
        self._quiet = quiet
        self._view = view
        self._warned: set[str] = set()
        self._lock = Lock()

    def __call__(self, told: StreamEvent) -> None:
        if self._quiet:
            return
        with self._lock:
            self._tell(told)

    def warn(self, text: str) -> None:
        """A remark of ours, once: ten agents have ten times the same to say."""
        with self._lock:
            if text not in self._warned and not self._quiet:
                self._warned.add(text)
                self._wipe()
                say(f"note: {printable(text)}", err=True)

    def look(self, follower: Follower) -> None:
        """Bring the live lines up to date, where there are any."""
        if self._view is not None and not self._quiet:
            with self._lock:
                self._view.draw(follower)

    def _tell(self, told: StreamEvent) -> None:
        self._wipe()
        if told.line:
            self._flush()
            is_gate = told.line.startswith("GATE-")
            say(printable(told.line), err=not is_gate)
        self._block = told.block or self._block

    def end(self, lines: tuple[str, ...] = ()) -> None:
        """Say where things stand, then the last block."""
        self._wipe()
        for line in lines:
            say(printable(line), err=True)
        self._flush()

    def _wipe(self) -> None:
        if self._view is not None:
            self._view.wipe()

    def _flush(self) -> None:
        if self._block:
            say(self._block.removesuffix("\n"))
            self._block = ""


class Remarks(logging.Handler):
    """Warnings of our own, handed to whoever tells."""

    def __init__(self, teller: Teller) -> None:
        super().__init__(logging.WARNING)
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        self._teller.warn(record.getMessage())


@contextmanager
def remarks_to(teller: Teller) -> Iterator[None]:
    """Have the warnings of the product told while the block runs."""
    logger, handler = logging.getLogger("phasegate"), Remarks(teller)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
