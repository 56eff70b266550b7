"""What YAML is read into, with a line number on everything, and how its fields become typed values.

All scalars are text: `1.10` stays `1.10`. YAML itself is read in `prompts/front_matter.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from phasegate.core.text.finding import Finding, quote_text, suggest_closest

FENCE = "---"
_CLOSING_FENCE = re.compile(rf"^{FENCE}[ \t\r]*$", re.MULTILINE)


class YamlText(NamedTuple):
    """A scalar."""

    value: str
    line: int


class YamlList(NamedTuple):
    """A list."""

    values: tuple[YamlNode, ...]
    line: int


class YamlMapping(NamedTuple):
    """A mapping, with the line of each key."""

    values: dict[str, YamlNode]
    key_lines: dict[str, int]
    line: int


YamlNode: TypeAlias = YamlText | YamlList | YamlMapping


class MalformedDocument(ValueError):
    """A document that cannot be read at all; the finding says where and why."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(line, "front-matter", message)


class SplitDocument(NamedTuple):
    """A document in two: the front matter without its fences (None: there is none), and the rest."""

    front_matter: str | None
    body: str
    body_line: int


def split_front_matter(text: str) -> SplitDocument:
    """Cut a document behind its front matter, which begins in line 1 or not at all.

    `Malformed` if it never ends.
    """
    first, _, rest = text.removeprefix("\ufeff").partition("\n")
    if first.rstrip() != FENCE:
        return SplitDocument(None, text, 1)

    end = _CLOSING_FENCE.search(rest)
    if end is None:
        raise MalformedDocument(
            1, "the front matter that opens here is not closed by a line of three hyphens"
        )

    return SplitDocument(
        rest[: end.start()], rest[end.end() + 1 :], 3 + rest.count("\n", 0, end.start())
    )


class FieldReader:
    """Reads a mapping field by field, and remembers everything that was wrong instead of stopping
    at the first.
    """

    def __init__(
        self, entries: YamlMapping, findings: list[Finding] | None = None, prefix: str = ""
    ) -> None:
        self._entries = entries
        self._prefix = prefix
        self._keys_read: list[str] = []
        self.findings: list[Finding] = [] if findings is None else findings

    def has(self, key: str) -> bool:
        """Whether a key is there, even with an empty value."""
        return key in self._entries.values

    def read_text(self, key: str, default: str = "") -> str:
        """A single value."""
        node = self._get_node(key)
        if node is None:
            return default
        if isinstance(node, YamlText):
            return node.value

        self.report_problem(key, "must be one value, not a list or a mapping")
        return default

    def read_optional_text(self, key: str) -> str | None:
        """A single value, or None where the key is absent: an empty value says something too."""
        value = self.read_text(key)
        if key in self._entries.values:
            return value
        return None

    def read_required_text(self, key: str) -> str:
        """A single value that must be there and not be empty."""
        value = self.read_text(key)

        if not value.strip():
            self.report_problem(
                key,
                "is missing" if key not in self._entries.values else "must be one value, not empty",
            )

        return value

    def read_texts(self, key: str) -> tuple[str, ...]:
        """A list of single values; a key with nothing behind it is an empty list."""
        node = self._get_node(key)
        if node is None or node[0] == "":
            return ()
        if isinstance(node, YamlList) and all(isinstance(item, YamlText) for item in node.values):
            return tuple(item.value for item in node.values if isinstance(item, YamlText))

        self.report_problem(key, "must be a list of single values, such as [one, two]")
        return ()

    def read_text_or_texts(self, key: str) -> tuple[str, ...]:
        """A list of single values, where one alone may stand without brackets."""
        node = self._entries.values.get(key)
        if isinstance(node, YamlText) and node.value:
            return (self.read_text(key),)
        return self.read_texts(key)

    def read_number(self, key: str, default: int) -> int:
        """A whole number without sign."""
        text = self.read_text(key, str(default))
        if text.isascii() and text.isdigit() and len(text) <= 9:
            return int(text)
        self.report_problem(key, f"must be a whole number, not {quote_text(text)}")
        return default

    def read_nested(self, key: str) -> FieldReader | None:
        """A mapping below this one; None if the key is absent or empty."""
        node = self._get_node(key)
        if node is None or node[0] == "":
            return None
        if isinstance(node, YamlMapping):
            return FieldReader(node, self.findings, f"{self._prefix}{key}.")

        self.report_problem(key, "must be a mapping, such as {key: value}")
        return None

    def read_text_mapping(self, key: str) -> dict[str, str]:
        """A mapping from names that are not known beforehand to single values."""
        below = self.read_nested(key)
        if below is None:
            return {}
        return {name: below.read_text(name) for name in below._entries.values}

    def report_problem(self, key: str, message: str, value: str | None = None) -> None:
        """Record what is wrong with a field, at the line of the value concerned where that can be
        told.
        """
        self.findings.append(
            Finding(self._find_line(key, value), "front-matter", f"{self._prefix}{key} {message}")
        )

    def report_unknown_keys(self, ignored: Iterable[str] = ()) -> None:
        """Record every key that nobody asked for, with the one that was probably meant."""
        for key in sorted(self._entries.values.keys() - set(self._keys_read) - set(ignored)):
            message = f"{quote_text(self._prefix + key)} is not a key here{suggest_closest(key, self._keys_read)}"
            self.findings.append(Finding(self._entries.key_lines[key], "unknown-key", message))

    def _get_node(self, key: str) -> YamlNode | None:
        self._keys_read.append(key)
        return self._entries.values.get(key)

    def _find_line(self, key: str, value: str | None) -> int:
        top, _, rest = key.partition(".")
        node = self._entries.values.get(top)
        if rest and isinstance(node, YamlMapping):
            return FieldReader(node)._find_line(rest, value)

        if isinstance(node, YamlList) and value is not None:
            at = next(
                (
                    item.line
                    for item in node.values
                    if isinstance(item, YamlText) and item.value == value
                ),
                None,
            )

            if at is not None:
                return at

        return self._entries.key_lines.get(top, self._entries.line)
