"""What YAML is read into, with a line number on everything, and how its fields become typed values.

All scalars are text: `1.10` stays `1.10`. YAML itself is read in `prompts/front_matter.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from phasegate.core.text.finding import Finding, closest, shown

FENCE = "---"
_END = re.compile(rf"^{FENCE}[ \t\r]*$", re.MULTILINE)


class Text(NamedTuple):
    """A scalar."""

    value: str
    line: int


class Items(NamedTuple):
    """A list."""

    values: tuple[Node, ...]
    line: int


class Entries(NamedTuple):
    """A mapping, with the line of each key."""

    values: dict[str, Node]
    key_lines: dict[str, int]
    line: int


Node: TypeAlias = Text | Items | Entries


class Malformed(ValueError):
    """A document that cannot be read at all; the finding says where and why."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(line, "front-matter", message)


class Split(NamedTuple):
    """A document in two: the front matter without its fences (None: there is none), and the rest."""

    front: str | None
    body: str
    body_line: int


def split(text: str) -> Split:
    """Cut a document behind its front matter, which begins in line 1 or not at all; `Malformed` if it never ends."""
    first, _, rest = text.removeprefix("\ufeff").partition("\n")
    if first.rstrip() != FENCE:
        return Split(None, text, 1)
    end = _END.search(rest)
    if end is None:
        raise Malformed(1, "the front matter that opens here is not closed by a line of three hyphens")
    return Split(rest[: end.start()], rest[end.end() + 1 :], 3 + rest.count("\n", 0, end.start()))


class Fields:
    """Reads a mapping field by field, and remembers everything that was wrong instead of stopping at the first."""

    def __init__(self, entries: Entries, findings: list[Finding] | None = None, prefix: str = "") -> None:
        self._entries = entries
        self._prefix = prefix
        self._asked: list[str] = []
        self.findings: list[Finding] = [] if findings is None else findings

    def has(self, key: str) -> bool:
        """Whether a key is there, even with an empty value."""
        return key in self._entries.values

    def text(self, key: str, default: str = "") -> str:
        """A single value."""
        node = self._take(key)
        if node is None:
            return default
        if isinstance(node, Text):
            return node.value
        self.problem(key, "must be one value, not a list or a mapping")
        return default

    def optional(self, key: str) -> str | None:
        """A single value, or None where the key is absent: an empty value says something too."""
        value = self.text(key)
        return value if key in self._entries.values else None

    def required(self, key: str) -> str:
        """A single value that must be there and not be empty."""
        value = self.text(key)
        if not value.strip():
            self.problem(key, "is missing" if key not in self._entries.values else "must be one value, not empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of single values; a key with nothing behind it is an empty list."""
        node = self._take(key)
        if node is None or node[0] == "":
            return ()
        if isinstance(node, Items) and all(isinstance(item, Text) for item in node.values):
            return tuple(item.value for item in node.values if isinstance(item, Text))
        self.problem(key, "must be a list of single values, such as [one, two]")
        return ()

    def text_or_texts(self, key: str) -> tuple[str, ...]:
        """A list of single values, where one alone may stand without brackets."""
        node = self._entries.values.get(key)
        if isinstance(node, Text) and node.value:
            return (self.text(key),)
        return self.texts(key)

    def number(self, key: str, default: int) -> int:
        """A whole number without sign."""
        text = self.text(key, str(default))
        if text.isascii() and text.isdigit() and len(text) <= 9:
            return int(text)
        self.problem(key, f"must be a whole number, not {shown(text)}")
        return default

    def fields(self, key: str) -> Fields | None:
        """A mapping below this one; None if the key is absent or empty."""
        node = self._take(key)
        if node is None or node[0] == "":
            return None
        if isinstance(node, Entries):
            return Fields(node, self.findings, f"{self._prefix}{key}.")
        self.problem(key, "must be a mapping, such as {key: value}")
        return None

    def mapping(self, key: str) -> dict[str, str]:
        """A mapping from names that are not known beforehand to single values."""
        below = self.fields(key)
        return {} if below is None else {name: below.text(name) for name in below._entries.values}

    def problem(self, key: str, message: str, value: str | None = None) -> None:
        """Record what is wrong with a field, at the line of the value concerned where that can be told."""
        self.findings.append(Finding(self._line(key, value), "front-matter", f"{self._prefix}{key} {message}"))

    def refuse_others(self, ignored: Iterable[str] = ()) -> None:
        """Record every key that nobody asked for, with the one that was probably meant."""
        for key in sorted(self._entries.values.keys() - set(self._asked) - set(ignored)):
            message = f"{shown(self._prefix + key)} is not a key here{closest(key, self._asked)}"
            self.findings.append(Finding(self._entries.key_lines[key], "unknown-key", message))

    def _take(self, key: str) -> Node | None:
        self._asked.append(key)
        return self._entries.values.get(key)

    def _line(self, key: str, value: str | None) -> int:
        top, _, rest = key.partition(".")
        node = self._entries.values.get(top)
        if rest and isinstance(node, Entries):
            return Fields(node)._line(rest, value)
        if isinstance(node, Items) and value is not None:
            at = next((item.line for item in node.values if isinstance(item, Text) and item.value == value), None)
            if at is not None:
                return at
        return self._entries.key_lines.get(top, self._entries.line)
