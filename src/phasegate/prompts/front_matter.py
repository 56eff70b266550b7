"""Parse the YAML that documents need: mappings, lists and text.

No types are guessed, no aliases resolved, no objects constructed.

It is outside of `core/` because it needs PyYAML. Only PyYAML's parser is used, event by event: no
resolver, so `no` and `1.10` stay text, and no constructor, so a tag cannot create an object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import yaml

from phasegate.core.text.finding import quote_text
from phasegate.core.text.yaml_nodes import (
    MalformedDocument,
    YamlList,
    YamlMapping,
    YamlNode,
    YamlText,
    split_front_matter,
)

MAX_YAML_CHARACTERS = 256 * 1024
MAX_NESTING_DEPTH = 8
# The C parser, if PyYAML was built with it
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class FrontMatterDocument(NamedTuple):
    """A document with parsed front matter, None if it has none."""

    front_matter: YamlMapping | None
    body: str
    body_line: int


def read_document(text: str) -> FrontMatterDocument:
    """Split a document and parse its front matter.

    Raise `MalformedDocument`, with the line number, if it is invalid.
    """
    parts = split_front_matter(text)
    if parts.front_matter is None:
        return FrontMatterDocument(None, parts.body, parts.body_line)

    node = read_yaml(parts.front_matter, first_line=2)
    if not isinstance(node, YamlMapping):
        raise MalformedDocument(2, "the front matter must be a mapping: one `key: value` a line")

    return FrontMatterDocument(node, parts.body, parts.body_line)


def read_yaml(text: str, first_line: int = 1) -> YamlNode:
    """Parse one YAML document into nodes with line numbers.

    Raise `MalformedDocument` for anything but plain data.
    """
    if len(text) > MAX_YAML_CHARACTERS:
        raise MalformedDocument(first_line, f"is larger than {MAX_YAML_CHARACTERS} characters")

    loader = _LOADER(text)
    try:
        return _YamlReader(loader, first_line).read_root()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = first_line + (mark.line if mark else 0)
        raise MalformedDocument(
            line, f"is not valid YAML: {getattr(error, 'problem', None) or 'unreadable'}"
        ) from error
    finally:
        loader.dispose()


class _YamlReader:
    """A reader of YAML events that stops at the first that is not plain data.

    The rest is not even scanned.
    """

    def __init__(self, loader: yaml.BaseLoader, first_line: int) -> None:
        # PyYAML's events have no common type
        self._next_event: Callable[[], Any] = loader.get_event
        self._first_line = first_line

    def read_root(self) -> YamlNode:
        """Read the only document of the stream."""
        # The start of the stream
        self._next_event()
        start = self._next_event()
        if type(start) is yaml.StreamEndEvent:
            return YamlText("", self._first_line)
        if start.version or start.tags:
            self._refuse(start, "contains a directive")

        node = self._read_node(self._next_event(), 1)
        # The end of the document
        self._next_event()
        if type(end := self._next_event()) is not yaml.StreamEndEvent:
            self._refuse(end, "contains a second document")

        return node

    def _read_node(self, event: Any, depth: int) -> YamlNode:
        """Read one node; refuse anchors, aliases, tags and deep nesting."""
        kind = type(event)
        if kind is yaml.AliasEvent or event.anchor is not None:
            self._refuse(event, "uses an anchor or an alias; write the value out")
        if event.tag is not None:
            self._refuse(event, "uses a tag; all values are plain text here")

        line = self._first_line + event.start_mark.line
        if kind is yaml.ScalarEvent:
            return YamlText(event.value, line)
        if depth > MAX_NESTING_DEPTH:
            self._refuse(event, f"is nested deeper than {MAX_NESTING_DEPTH} levels")
        if kind is yaml.SequenceStartEvent:
            return self._read_list(line, depth)

        return self._read_mapping(line, depth)

    def _read_list(self, line: int, depth: int) -> YamlList:
        values = []
        while type(event := self._next_event()) is not yaml.SequenceEndEvent:
            values.append(self._read_node(event, depth + 1))
        return YamlList(tuple(values), line)

    def _read_mapping(self, line: int, depth: int) -> YamlMapping:
        """Read a mapping, with the line of each key; refuse duplicate keys."""
        values: dict[str, YamlNode] = {}
        lines: dict[str, int] = {}

        while type(event := self._next_event()) is not yaml.MappingEndEvent:
            key = self._read_node(event, depth + 1)
            if not isinstance(key, YamlText):
                self._refuse(event, "uses a list or a mapping as a key")
            elif key.value in values:
                self._refuse(
                    event,
                    f"has the key {quote_text(key.value)} twice, first in line {lines[key.value]}",
                )
            else:
                values[key.value] = self._read_node(self._next_event(), depth + 1)
                lines[key.value] = key.line

        return YamlMapping(values, lines, line)

    def _refuse(self, event: Any, why: str) -> NoReturn:
        raise MalformedDocument(self._first_line + event.start_mark.line, why)
