"""Live lines at the bottom of a terminal, below the regular output.

No terminal mode is changed, so nothing needs to be restored: the lines are erased at the end, even
after an error. Without a terminal (a pipe, a log, TERM=dumb) no lines are drawn.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from phasegate.background import repeat_in_background
from phasegate.core.display.status import cut_to_width
from phasegate.interfaces.cli.render import make_printable, print_line

REDRAW_INTERVAL_S = 0.5
_CLEAR_LINE = "\r\x1b[2K"
_CLEAR_LINE_ABOVE = "\x1b[1A\x1b[2K"
# One line up and down again: what follows starts after a line feed, as a block must
_LINE_FEED_IN_PLACE = "\x1b[1A\n"
_DEFAULT_COLUMNS = 80
_DEFAULT_ROWS = 24


class LiveLines:
    """The live lines that are drawn on stderr. Thread-safe."""

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
        """Whether stderr is a terminal that lines can be drawn on."""
        return self._is_live

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the drawn lines."""
        with self._lock:
            columns, rows = self._read_terminal_size()
            if self._is_live:
                fitting = [cut_to_width(make_printable(line), columns - 1) for line in lines]
            else:
                fitting = []

            # Lines above the top of the screen could not be erased.
            if len(fitting) >= rows:
                fitting = [*fitting[: rows - 2], f"... and {len(fitting) - rows + 2} more lines"]

            if fitting != self._drawn:
                text = "\n".join(fitting) or _LINE_FEED_IN_PLACE
                self._write(self._build_clear_sequence() + text)
                self._drawn = fitting

    def clear(self) -> None:
        """Erase the lines."""
        self.draw(())

    def print_above(self, text: str, *, err: bool = True) -> None:
        """Print a line above the live lines."""
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
            # The terminal was closed: continue without live lines.
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
    """Redraw the lines at a fixed interval while the block runs."""
    try:
        with repeat_in_background(
            lambda: live.draw(render_lines()), REDRAW_INTERVAL_S, "live lines"
        ):
            yield
    finally:
        live.clear()


@contextmanager
def show_waiting(activity: str) -> Iterator[None]:
    """Show an activity and its duration on a terminal, if it takes longer than a second."""
    started_s = time.monotonic()

    def render() -> list[str]:
        passed_s = time.monotonic() - started_s
        if passed_s >= 1:
            return [f"{activity}  {format_clock(passed_s)}"]
        return []

    with redraw_periodically(LiveLines(), render):
        yield


def format_clock(seconds: float) -> str:
    """Format a duration as minutes and seconds: 2:05."""
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02}"
