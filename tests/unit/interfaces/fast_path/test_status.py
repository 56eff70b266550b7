"""`phasegate status`: the width, the colours, and what is left to the command line."""

from __future__ import annotations

import io
import sys

import pytest

from phasegate.interfaces.fast_path.status import (
    build_status_page,
    can_use_colours,
    run_fast_path,
)


class Terminal(io.TextIOWrapper):
    """A terminal that shows UTF-8."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding)

    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called in the test itself: pytest replaces stdout after the fixtures."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize("arguments", [["--help"], ["WP01"], ["--all", "--json"], ["--fleet"]])
def test_other_arguments_are_left_to_the_command_line(arguments: list[str]) -> None:
    assert run_fast_path(arguments) is None


def test_a_terminal_gets_a_summary_with_drawings_and_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_terminal(monkeypatch)
    page = build_status_page(show_all=False)
    assert (page.is_long, page.is_drawn) == (False, True)
    assert page.style("text", "red") == "\x1b[31mtext\x1b[0m"
    assert page.style("", "red") == ""
    assert page.style("text", "no such colour") == "text"
    assert build_status_page(show_all=True).is_long


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_colours_gets_none(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    open_terminal(monkeypatch)
    assert can_use_colours()
    monkeypatch.setenv(name, value)
    assert not can_use_colours()
    assert build_status_page(show_all=False).style("text", "red") == "text"


def test_a_terminal_of_another_encoding_gets_no_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)
    assert build_status_page(show_all=False).is_drawn
    monkeypatch.setattr(sys, "stdout", Terminal("latin-1"))
    assert not build_status_page(show_all=False).is_drawn


def test_a_pipe_gets_everything_and_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    page = build_status_page(show_all=False)
    assert (page.is_long, page.is_drawn, page.style("text", "red")) == (True, False, "text")


@pytest.mark.parametrize(("columns", "width"), [("72", 72), ("0", 100), ("-5", 100), ("x", 100)])
def test_the_width_is_that_of_the_environment_if_it_is_one(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", columns)
    assert build_status_page(show_all=False).width == width
