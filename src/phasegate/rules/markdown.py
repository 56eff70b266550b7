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
_ITEM = re.compile(r"([ \t]*(?:[-+*]|(\d{1,9})[.)]))(?:[ \t]+(?=\S)|[ \t]*$)")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_MENU = re.compile(r"[ \t]*\[\d+\]")
_TAB = 4  # also: text that is indented so far is code
_DEEPEST_LIST = 20  # what is nested deeper is not looked into


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
    QUOTE = auto()
    TEXT = auto()


_PARAGRAPH = (LineKind.TEXT, LineKind.MENU)
_LAZY = (*_PARAGRAPH, LineKind.TABLE)


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
    """Knows what is open at the end of the line before. A list item has a scanner of its own for what it holds."""

    def __init__(self, depth: int = 0) -> None:
        self.opened_at: int | None = None
        self._closes: re.Pattern[str] | None = None
        self._inside = LineKind.FENCE
        self._before = LineKind.BLANK
        self._depth = depth
        self._item: _Scanner | None = None
        self._item_column = 0  # where the text of the open item begins
        self._is_empty = True

    def kind_of(self, text: str, number: int = 0) -> LineKind:
        """What the next line is."""
        if self._closes is not None:
            self._before = self._continued(text)
        elif not text.strip(" \t"):
            self._before = self._blank(text)
        else:
            self._before = self._in_item(text) or self._at_margin(text, number)
            self._is_empty = False
        return self._before

    def in_paragraph(self) -> bool:
        """Whether the next line would go on with a paragraph, if only by being lazy about its indent."""
        return self._item.in_paragraph() if self._item else self._closes is None and self._before in _PARAGRAPH

    def _continued(self, text: str) -> LineKind:
        if self._closes and self._closes.search(text):
            self._closes = self.opened_at = None
        return self._inside

    def _blank(self, text: str) -> LineKind:
        if self._item:
            is_empty = self._item._is_empty
            self._item.kind_of(text)
            self._item = None if is_empty else self._item
        return LineKind.BLANK

    def _in_item(self, text: str) -> LineKind | None:
        """LIST for a line that belongs to the open item; what does not ends the item."""
        if self._item is None:
            return None
        if _indent(text) >= self._item_column:
            self._look_inside(self._item, text)
            return LineKind.LIST
        if self._item.in_paragraph() and not _ITEM.match(text) and _plain_kind(text) in _LAZY:
            return LineKind.LIST
        self._item = None
        return None

    def _at_margin(self, text: str, number: int) -> LineKind:
        paragraph = self._before in _PARAGRAPH
        if _indent(text) >= _TAB:
            return self._before if paragraph else LineKind.CODE
        if paragraph and _UNDERLINE.match(text):
            return LineKind.RULE
        if self._starts_item(text, paragraph):
            return LineKind.LIST
        kind = _plain_kind(text)
        if kind in (LineKind.FENCE, LineKind.COMMENT):
            self._open(kind, text, number)
        return LineKind.TABLE if kind is LineKind.TEXT and self._before is LineKind.TABLE else kind

    def _starts_item(self, text: str, paragraph: bool) -> bool:
        item = _ITEM.match(text)
        if not item or _RULE.match(text):
            return False
        if paragraph and (item.end() == len(text) or item[2] not in (None, "1")):
            return False  # neither an empty item nor one that counts from elsewhere breaks a paragraph
        marker, content = (len(text[:end].expandtabs(_TAB)) for end in (item.end(1), item.end()))
        self._item_column = content if item.end() < len(text) and content - marker <= _TAB else marker + 1
        self._item = _Scanner(self._depth + 1)
        self._look_inside(self._item, text)
        return True

    def _look_inside(self, item: _Scanner, text: str) -> None:
        if self._depth < _DEEPEST_LIST:
            item.kind_of(text.expandtabs(_TAB)[self._item_column :])

    def _open(self, kind: LineKind, text: str, number: int) -> None:
        if kind is LineKind.COMMENT:
            closes, rest = re.compile("-->"), text.partition("<!--")[2]
        else:
            bare = text.lstrip(" ")
            length = len(bare) - len(bare.lstrip(bare[0]))
            closes, rest = re.compile(rf"^ {{0,3}}{bare[0]}{{{length},}}[ \t]*$"), ""
        if not closes.search(rest):
            self._closes, self._inside, self.opened_at = closes, kind, number


def _indent(text: str) -> int:
    expanded = text.expandtabs(_TAB)
    return len(expanded) - len(expanded.lstrip(" "))


def _plain_kind(text: str) -> LineKind:
    """The kind of a line at the margin that needs no context."""
    if _HEADING.match(text):
        return LineKind.HEADING
    if _RULE.match(text):
        return LineKind.RULE
    if _MENU.match(text):
        return LineKind.MENU
    bare = text.strip(" \t")
    if bare.startswith("<!--"):
        return LineKind.COMMENT
    if bare.startswith(">"):
        return LineKind.QUOTE
    fence = _FENCE.match(text)
    if fence and not (fence[1][0] == "`" and "`" in fence[2]):
        return LineKind.FENCE
    return LineKind.TABLE if _is_table(bare) else LineKind.TEXT


def _is_table(bare: str) -> bool:
    """A row between bars, or the line between a table's head and body."""
    return bare.startswith("|") or ("|" in bare and "-" in bare and not bare.strip("|:- \t"))
