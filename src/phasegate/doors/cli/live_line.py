"""One line at the bottom of a terminal that says what is going on; what is said meanwhile stays above it.

Nothing of the terminal is changed but that line, so there is nothing to put back: it is wiped at the end, however the
end comes. Elsewhere (a pipe, a log, TERM=dumb) there is no such line, only what is said.
"""

from __future__ import annotations

import logging
import os
import time
import unicodedata
from threading import Event, Lock, Thread
from typing import Self, TextIO

from phasegate.doors.cli.render import printable
from phasegate.engine.agent_jobs import Progress

REDRAW_EVERY_S = 0.5
_WIPE = "\r\x1b[2K"
_COLUMNS = 80


class LiveLine:
    """Says lines, and keeps one up to date on a terminal. Threads may call it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._is_gone = False
        self._lock = Lock()
        self._progress: Progress | None = None
        self._since_s = 0.0
        self._ended = Event()
        self._ticker = Thread(target=self._tick, daemon=True)
        self._warnings = _Warnings(self)

    def __enter__(self) -> Self:
        logging.getLogger("phasegate").addHandler(self._warnings)
        if self._is_live:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("phasegate").removeHandler(self._warnings)
        self._ended.set()
        if self._is_live:
            self._ticker.join()
            self._write(_WIPE)

    def say(self, line: str) -> None:
        """A line that stays."""
        with self._lock:
            self._write(f"{_WIPE if self._is_live else ''}{printable(line)}\n{self._line()}")

    def show(self, progress: Progress) -> None:
        """What is going on from now on. The clock counts from the beginning of a step."""
        with self._lock:
            if self._progress is None or self._progress[2:5] != progress[2:5]:
                self._since_s = time.monotonic()
            self._progress = progress
            self._write(self._line())

    def _tick(self) -> None:
        while not self._ended.wait(REDRAW_EVERY_S):
            with self._lock:
                self._write(self._line())

    def _write(self, text: str) -> None:
        if not text or self._is_gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # nobody can read it any more: no reason to stop the work
            self._is_gone = True

    def _line(self) -> str:
        if not self._is_live or self._progress is None:
            return ""
        passed_s = int(time.monotonic() - self._since_s)
        text = f"{described(self._progress)}  {passed_s // 60}:{passed_s % 60:02}"
        return _WIPE + cut(printable(text), self._columns() - 1)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS


def described(now: Progress) -> str:
    """What is going on, in a line."""
    who = f" by {', '.join(now.agents)}" if now.agents else ""
    return f"{now.package}  {now.state}  round {now.round}/{now.rounds}  {now.step}{who}"


def cut(text: str, columns: int) -> str:
    """As much of a text as fits; letters of double width count twice."""
    used = 0
    for position, letter in enumerate(text):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > columns:
            return text[:position]
    return text


class _Warnings(logging.Handler):
    """Warnings of our own go above the line too, each once: ten agents have ten times the same to say."""

    def __init__(self, line: LiveLine) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()
        self._to = line

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._told:
            self._told.add(text)
            self._to.say(f"note: {text}")
