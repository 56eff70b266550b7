"""YAML as far as documents need it: mappings, lists and text. Nothing in it is guessed, referred to or constructed.

It stands outside `core/` because it needs PyYAML. Only the parser of that is used, event by event: no resolver, so
`no` and `1.10` stay text, and no constructor, so a tag cannot make anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import yaml

from phasegate.core.text.finding import shown
from phasegate.core.text.yaml_nodes import Entries, Items, Malformed, Node, Text, split

LARGEST_FRONT_MATTER = 256 * 1024
DEEPEST_NESTING = 8
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the C parser where PyYAML was built with it


class Document(NamedTuple):
    """A document with its front matter read; None: it has none."""

    front: Entries | None
    body: str
    body_line: int


def read_document(text: str) -> Document:
    """Split a document and read its front matter; `Malformed` names the line."""
    parts = split(text)
    if parts.front is None:
        return Document(None, parts.body, parts.body_line)
    node = read_yaml(parts.front, first_line=2)
    if not isinstance(node, Entries):
        raise Malformed(2, "the front matter must be a mapping: one `key: value` a line")
    return Document(node, parts.body, parts.body_line)


def read_yaml(text: str, first_line: int = 1) -> Node:
    """One YAML document as nodes with line numbers; anything beyond plain data is `Malformed`."""
    if len(text) > LARGEST_FRONT_MATTER:
        raise Malformed(first_line, f"is larger than {LARGEST_FRONT_MATTER} characters")
    loader = _LOADER(text)
    try:
        return _YamlReader(loader, first_line).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = first_line + (mark.line if mark else 0)
        raise Malformed(line, f"is not valid YAML: {getattr(error, 'problem', None) or 'unreadable'}") from error
    finally:
        loader.dispose()


class _YamlReader:
    """Takes events one by one and stops at the first that is not plain data; what follows is not even scanned."""

    def __init__(self, loader: yaml.BaseLoader, first_line: int) -> None:
        self._next: Callable[[], Any] = loader.get_event  # PyYAML's events share no typed shape
        self._first_line = first_line

    def document(self) -> Node:
        self._next()  # the start of the stream
        start = self._next()
        if type(start) is yaml.StreamEndEvent:
            return Text("", self._first_line)
        if start.version or start.tags:
            self._refuse(start, "holds a directive")
        node = self._node(self._next(), 1)
        self._next()  # the end of the document
        if type(end := self._next()) is not yaml.StreamEndEvent:
            self._refuse(end, "holds a second document")
        return node

    def _node(self, event: Any, depth: int) -> Node:
        kind = type(event)
        if kind is yaml.AliasEvent or event.anchor is not None:
            self._refuse(event, "uses an anchor or an alias; write the value out")
        if event.tag is not None:
            self._refuse(event, "uses a tag; all values are plain text here")
        line = self._first_line + event.start_mark.line
        if kind is yaml.ScalarEvent:
            return Text(event.value, line)
        if depth > DEEPEST_NESTING:
            self._refuse(event, f"is nested deeper than {DEEPEST_NESTING} levels")
        return self._items(line, depth) if kind is yaml.SequenceStartEvent else self._entries(line, depth)

    def _items(self, line: int, depth: int) -> Items:
        values = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            values.append(self._node(event, depth + 1))
        return Items(tuple(values), line)

    def _entries(self, line: int, depth: int) -> Entries:
        values: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            key = self._node(event, depth + 1)
            if not isinstance(key, Text):
                self._refuse(event, "uses a list or a mapping as a key")
            elif key.value in values:
                self._refuse(event, f"has the key {shown(key.value)} twice, first in line {lines[key.value]}")
            else:
                values[key.value] = self._node(self._next(), depth + 1)
                lines[key.value] = key.line
        return Entries(values, lines, line)

    def _refuse(self, event: Any, why: str) -> NoReturn:
        raise Malformed(self._first_line + event.start_mark.line, why)
