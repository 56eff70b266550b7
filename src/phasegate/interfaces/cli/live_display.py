"""Lines at the bottom of a terminal that say what is going on.

What is printed meanwhile stays above them.

Nothing of the terminal is changed but those lines, so there is nothing to put back: they are wiped
at the end, however the end comes. Elsewhere (a pipe, a log, TERM=dumb) there are none.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, RLock, Thread

from phasegate.core.display.status import cut_to_width
from phasegate.interfaces.cli.render import make_printable, print_line

REDRAW_INTERVAL_S = 0.5
_CLEAR_LINE = "\r\x1b[2K"
_CLEAR_LINE_ABOVE = "\x1b[1A\x1b[2K"
_DEFAULT_COLUMNS = 80
_DEFAULT_ROWS = 24


class LiveLines:
    """The lines that are on the screen now, on stderr. Threads may call it."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_live = (
            self._stream is not None
            and self._stream.isatty()
            and os.environ.get("TERM", "dumb") != "dumb"
        )
        self._drawn: list[str] = []
        self._lock = RLock()

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self._is_live

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead of those before."""
        with self._lock:
            columns, rows = self._read_terminal_size()
            if self._is_live:
                fitting = [cut_to_width(make_printable(line), columns - 1) for line in lines]
            else:
                fitting = []

            # What is above the screen could not be wiped
            if len(fitting) >= rows:
                fitting = [*fitting[: rows - 2], f"... and {len(fitting) - rows + 2} lines more"]
            if fitting != self._drawn:
                self._write(self._build_clear_sequence() + "\n".join(fitting))
                self._drawn = fitting

    def clear(self) -> None:
        """Take the lines off the screen."""
        self.draw(())

    def print_above(self, text: str, *, err: bool = True) -> None:
        """Print a line that stays."""
        with self._lock:
            drawn = self._drawn
            self.clear()
            print_line(text, err=err)
            self.draw(drawn)

    def _build_clear_sequence(self) -> str:
        return _CLEAR_LINE + _CLEAR_LINE_ABOVE * (len(self._drawn) - 1)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # The terminal was closed: the work goes on without a view
            self._is_live = False

    def _read_terminal_size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return _DEFAULT_COLUMNS, _DEFAULT_ROWS
        return columns or _DEFAULT_COLUMNS, max(rows or _DEFAULT_ROWS, 3)


@contextmanager
def redraw_periodically(
    live: LiveLines, render_lines: Callable[[], Sequence[str]]
) -> Iterator[None]:
    """Draw what `lines` says, again and again, while the block runs."""
    ended = Event()

    def tick() -> None:
        while not ended.wait(REDRAW_INTERVAL_S):
            live.draw(render_lines())

    ticker = Thread(target=tick, daemon=True)
    ticker.start()

    try:
        yield
    finally:
        ended.set()
        ticker.join()
        live.clear()


@contextmanager
def show_waiting(activity: str) -> Iterator[None]:
    """Say what is waited for and for how long, once it takes longer than a moment.

    Only on a terminal.
    """
    began_s = time.monotonic()

    def line() -> list[str]:
        passed_s = time.monotonic() - began_s
        if passed_s >= 1:
            return [f"{activity}  {format_clock(passed_s)}"]
        return []

    with redraw_periodically(LiveLines(), line):
        yield


def format_clock(seconds: float) -> str:
    """A duration as a clock shows it."""
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02}"
