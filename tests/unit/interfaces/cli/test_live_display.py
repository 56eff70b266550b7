"""Live lines: drawn on a terminal, erased exactly, and not at all elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from phasegate.interfaces.cli.live_display import LiveLines, format_clock


class Terminal(io.StringIO):
    """A terminal of the default size."""

    def isatty(self) -> bool:
        return True

    def drain(self) -> str:
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test itself: pytest replaces stderr after the fixtures."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    return made


def test_lines_are_erased_as_often_as_they_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    live = LiveLines()
    live.draw(["one", "two", "three"])
    assert terminal.drain().endswith("one\ntwo\nthree")
    live.draw(["one", "two", "three"])
    assert terminal.drain() == ""
    live.clear()
    assert terminal.drain() == "\r\x1b[2K" + "\x1b[1A\x1b[2K" * 2 + "\x1b[1A\n"


def test_a_line_fits_the_terminal_and_controls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    LiveLines().draw(["x" * 200, "a\x1b[2Jb\n"])
    first, second = terminal.drain().removeprefix("\r\x1b[2K").split("\n")
    assert len(first) == 79
    assert second.isprintable()


def test_more_lines_than_the_terminal_has_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    LiveLines().draw([str(number) for number in range(30)])
    lines = terminal.drain().split("\n")
    assert len(lines) == 23
    assert lines[-1] == "... and 8 more lines"
    LiveLines().draw([str(number) for number in range(24)])
    assert terminal.drain().endswith("\n21\n... and 2 more lines")
    LiveLines().draw([str(number) for number in range(23)])
    assert terminal.drain().endswith("\n22")


def test_a_printed_line_stands_above_the_live_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    live = LiveLines()
    live.draw(["live"])
    terminal.drain()
    live.print_above("printed")
    assert terminal.drain() == "\r\x1b[2K\x1b[1A\nprinted\n\r\x1b[2Klive"


@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_terminal_that_cannot_move_its_cursor_gets_no_live_lines(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.delenv("TERM")
    if name:
        monkeypatch.setenv("TERM", name)
    live = LiveLines()
    live.draw(["live"])
    assert (live.is_live, terminal.drain()) == (False, "")


def test_a_pipe_gets_no_live_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setenv("TERM", "xterm")
    live = LiveLines()
    live.draw(["live"])
    live.print_above("printed")
    assert pipe.getvalue() == "printed\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0:00"), (59.9, "0:59"), (125, "2:05"), (6000, "100:00")]
)
def test_a_clock_has_minutes_and_seconds(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text
