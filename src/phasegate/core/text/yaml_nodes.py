"""YAML nodes with line numbers, and a reader that turns their fields into typed values.

All scalars are text: `1.10` stays `1.10`. `prompts/front_matter.py` parses the YAML.
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
    """A document that cannot be parsed at all; the finding has line and reason."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(line, "front-matter", message)


class SplitDocument(NamedTuple):
    """A document split into front matter and body.

    The front matter is without its fences, None if there is none.
    """

    front_matter: str | None
    body: str
    body_line: int


def split_front_matter(text: str) -> SplitDocument:
    """Split a document after its front matter, which starts in line 1 if at all.

    Raise `MalformedDocument` if it never ends.
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
    """Reader of a mapping that collects all findings instead of stopping at the first."""

    def __init__(
        self, entries: YamlMapping, findings: list[Finding] | None = None, prefix: str = ""
    ) -> None:
        self._entries = entries
        self._prefix = prefix
        self._keys_read: list[str] = []
        self.findings: list[Finding] = [] if findings is None else findings

    def has(self, key: str) -> bool:
        """Return True if a key is present, even with an empty value."""
        return key in self._entries.values

    def read_text(self, key: str, default: str = "") -> str:
        """Read a single value."""
        node = self._get_node(key)
        if node is None:
            return default
        if isinstance(node, YamlText):
            return node.value

        self.report_problem(key, "must be one value, not a list or a mapping")
        return default

    def read_optional_text(self, key: str) -> str | None:
        """Read a single value; None if the key is absent, which differs from an empty value."""
        value = self.read_text(key)
        if self.has(key):
            return value
        return None

    def read_required_text(self, key: str) -> str:
        """Read a single value that must be present and not empty."""
        value = self.read_text(key)

        if not self.has(key):
            self.report_problem(key, "is missing")
        elif not value.strip():
            self.report_problem(key, "must be one value, not empty")

        return value

    def read_texts(self, key: str) -> tuple[str, ...]:
        """Read a list of single values; a key without a value is an empty list."""
        node = self._get_node(key)
        if node is None or node[0] == "":
            return ()
        if isinstance(node, YamlList) and all(isinstance(item, YamlText) for item in node.values):
            return tuple(item.value for item in node.values if isinstance(item, YamlText))

        self.report_problem(key, "must be a list of single values, such as [one, two]")
        return ()

    def read_text_or_texts(self, key: str) -> tuple[str, ...]:
        """Read a list of scalars; a bare scalar counts as a list of one."""
        node = self._entries.values.get(key)
        if isinstance(node, YamlText) and node.value:
            return (self.read_text(key),)
        return self.read_texts(key)

    def read_number(self, key: str, default: int) -> int:
        """Read a whole number without a sign."""
        text = self.read_text(key, str(default))
        if text.isascii() and text.isdigit() and len(text) <= 9:
            return int(text)
        self.report_problem(key, f"must be a whole number, not {quote_text(text)}")
        return default

    def read_nested(self, key: str) -> FieldReader | None:
        """Read a nested mapping, or return None if the key is absent or empty."""
        node = self._get_node(key)
        if node is None or node[0] == "":
            return None
        if isinstance(node, YamlMapping):
            return FieldReader(node, self.findings, f"{self._prefix}{key}.")

        self.report_problem(key, "must be a mapping, such as {key: value}")
        return None

    def read_text_mapping(self, key: str) -> dict[str, str]:
        """Read a mapping of arbitrary names to single values."""
        below = self.read_nested(key)
        if below is None:
            return {}
        return {name: below.read_text(name) for name in below._entries.values}

    def report_problem(self, key: str, message: str, value: str | None = None) -> None:
        """Record a problem of a field, at the line of the value concerned if that is known."""
        self.findings.append(
            Finding(self._find_line(key, value), "front-matter", f"{self._prefix}{key} {message}")
        )

    def report_unknown_keys(self, ignored: Iterable[str] = ()) -> None:
        """Record every key that was not read, and suggest the closest known key."""
        for key in sorted(self._entries.values.keys() - set(self._keys_read) - set(ignored)):
            suggestion = suggest_closest(key, self._keys_read)
            message = f"{quote_text(self._prefix + key)} is not a key here{suggestion}"
            self.findings.append(Finding(self._entries.key_lines[key], "unknown-key", message))

    def _get_node(self, key: str) -> YamlNode | None:
        self._keys_read.append(key)
        return self._entries.values.get(key)

    def _find_line(self, key: str, value: str | None) -> int:
        """Return the line of a key, or of one value in its list."""
        top, _, rest = key.partition(".")
        node = self._entries.values.get(top)
        if rest and isinstance(node, YamlMapping):
            return FieldReader(node)._find_line(rest, value)

        if isinstance(node, YamlList) and value is not None:
            for item in node.values:
                if isinstance(item, YamlText) and item.value == value:
                    return item.line

        return self._entries.key_lines.get(top, self._entries.line)
