"""Markdown read line by line, as far as agent files need it: what kind of line each one is, after CommonMark.

A level-1 heading starts at the margin and thereby ends every list, so only fences and comments that stand outside of
lists can hide one. Lists are tracked for that reason alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

_ENDINGS = re.compile(r"(\r\n|\n|\r)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_ITEM = re.compile(r"[ \t]*(?:[-+*]|(\d{1,9})[.)])(?:[ \t]+(?=\S)|[ \t]*$)")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_MENU = re.compile(r"[ \t]*\[\d+\]")
_CODE_INDENT = 4


class LineKind(Enum):
    """What a line is, or is a part of."""

    BLANK = auto()
    FRONT_MATTER = auto()
    HEADING = auto()
    FENCE = auto()
    COMMENT = auto()
    LIST = auto()
    TABLE = auto()
    MENU = auto()  # `[1] an option`: how a block is quoted without a fence
    RULE = auto()  # a thematic break, or the line under a heading of the other style
    CODE = auto()  # indented
    TEXT = auto()


class Line(NamedTuple):
    """A line and how it ended; the last one of a file may end in nothing."""

    text: str
    ending: str


class Read(NamedTuple):
    """The kind of each line, and the line where a fence or comment opened that never closed."""

    kinds: tuple[LineKind, ...]
    unclosed: int | None


def split_lines(text: str) -> list[Line]:
    """The lines of a text; only LF, CRLF and CR end one, and joining all parts gives the text again."""
    parts = _ENDINGS.split(text)
    lines = [Line(*pair) for pair in zip(parts[::2], [*parts[1::2], ""], strict=True)]
    return lines if lines[-1].text else lines[:-1]


def main_title(line: str) -> str | None:
    """The title of a level-1 heading (`# TITLE`); None for any other line."""
    match = _HEADING.match(line)
    return (match[2] or "").strip(" \t") if match and match[1] == "#" else None


def read_kinds(lines: Sequence[Line], front_matter: int) -> Read:
    """What each line is; the first `front_matter` lines are known to be that."""
    scanner = _Scanner()
    kinds = [LineKind.FRONT_MATTER] * front_matter
    kinds += [scanner.kind_of(line.text, number) for number, line in enumerate(lines) if number >= front_matter]
    return Read(tuple(kinds), scanner.opened_at)


class _Scanner:
    """Knows what is open at the end of the line before."""

    def __init__(self) -> None:
        self.opened_at: int | None = None
        self._closes: re.Pattern[str] | None = None
        self._inside = LineKind.FENCE
        self._item = 0  # the column where the text of the open list item begins
        self._before = LineKind.BLANK

    def kind_of(self, text: str, number: int) -> LineKind:
        kind = self._continued(text) if self._closes else self._started(text, number)
        self._before = kind
        return kind

    def _continued(self, text: str) -> LineKind:
        assert self._closes is not None
        if self._closes.search(text):
            self._closes = self.opened_at = None
        return self._inside

    def _started(self, text: str, number: int) -> LineKind:
        if not text.strip(" \t"):
            return LineKind.BLANK
        kind = self._in_item(text) or self._at_margin(text)
        if kind in (LineKind.FENCE, LineKind.COMMENT):
            self._open(kind, text, number)
        return kind

    def _in_item(self, text: str) -> LineKind | None:
        """LIST for a line that belongs to the open item: indented far enough, or a lazy continuation of its text."""
        if not self._item:
            return None
        if _indent(text) >= self._item or (self._before is LineKind.LIST and _plain_kind(text) is LineKind.TEXT):
            return LineKind.LIST
        self._item = 0
        return None

    def _at_margin(self, text: str) -> LineKind:
        paragraph = self._before in (LineKind.TEXT, LineKind.MENU)
        if _indent(text) >= _CODE_INDENT:
            return self._before if paragraph else LineKind.CODE
        if paragraph and _UNDERLINE.match(text):
            return LineKind.RULE
        if self._starts_item(text, paragraph):
            return LineKind.LIST
        kind = _plain_kind(text)
        return LineKind.TABLE if kind is LineKind.TEXT and self._before is LineKind.TABLE else kind

    def _starts_item(self, text: str, paragraph: bool) -> bool:
        item = _ITEM.match(text)
        if not item or _RULE.match(text):
            return False
        if paragraph and (item.end() == len(text) or item[1] not in (None, "1")):
            return False  # neither an empty item nor one that counts from elsewhere breaks a paragraph
        self._item = _indent(text[: item.end()] + "x")
        return True

    def _open(self, kind: LineKind, text: str, number: int) -> None:
        if kind is LineKind.COMMENT:
            closes, rest = re.compile("-->"), text.partition("<!--")[2]
        else:
            fence = text.strip(" \t")[0]
            length = len(text.lstrip(" ")) - len(text.lstrip(" ").lstrip(fence))
            closes, rest = re.compile(rf" {{0,3}}{fence}{{{length},}}[ \t]*$"), ""
        if not closes.search(rest):
            self._closes, self._inside, self.opened_at = closes, kind, number


def _indent(text: str) -> int:
    expanded = text.expandtabs(_CODE_INDENT)
    return len(expanded) - len(expanded.lstrip(" "))


def _plain_kind(text: str) -> LineKind:
    """The kind of a line at the margin that needs no context."""
    if _HEADING.match(text):
        return LineKind.HEADING
    if _RULE.match(text):
        return LineKind.RULE
    if _MENU.match(text):
        return LineKind.MENU
    if text.lstrip(" ").startswith("<!--"):
        return LineKind.COMMENT
    fence = _FENCE.match(text)
    if fence and not (fence[1][0] == "`" and "`" in fence[2]):
        return LineKind.FENCE
    return LineKind.TABLE if _is_table(text.strip(" \t")) else LineKind.TEXT


def _is_table(bare: str) -> bool:
    """A row between bars, or the line between a table's head and body."""
    return bare.startswith("|") or ("|" in bare and "-" in bare and not bare.strip("|:- \t"))
