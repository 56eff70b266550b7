"""Parse one line of a program's stream, with tolerance for changes between versions.

An invalid field counts as absent; if the struct has no default for it, the line is unreadable. So
required fields have no default, and an invalid token count never makes a line unreadable.
"""

from __future__ import annotations

import json
import re
from typing import Generic, NamedTuple, TypeVar, get_args

import msgspec

from phasegate.typed import read_json, read_value

Line = TypeVar("Line")
MAX_INVALID_FIELDS = 20
_PATH = re.compile(r" - at `\$(.*)`$")
_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+|\.\.\.)\]")
_TYPE = re.compile(r'\s*\{\s*"type"\s*:\s*"([^"\\]{1,60})"')


class ParsedLine(NamedTuple, Generic[Line]):
    """A parsed line; None if it is unreadable or not a line of the protocol."""

    line: Line | None
    # a field or the whole line could not be read
    has_invalid_fields: bool = False
    # the unreadable part may have been a part of the answer
    loses_text: bool = False


class LineReader(Generic[Line]):
    """A reader of one protocol's lines: structs tagged by `type`; other types are skipped.

    `text_tags` are the types that contain the agent's messages.
    """

    def __init__(self, line_type: object, text_tags: tuple[str, ...]) -> None:
        self._type = line_type
        self._text_tags = text_tags
        structs = get_args(line_type) or (line_type,)
        self._tags = frozenset(struct.__struct_config__.tag for struct in structs)

    def parse_line(self, text: str) -> ParsedLine[Line]:
        try:
            return ParsedLine(read_json(text, self._type))
        except msgspec.ValidationError as error:
            return self._parse_valid_fields(text, error)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._handle_invalid_json(text)

    def _handle_invalid_json(self, text: str) -> ParsedLine[Line]:
        """Handle text that is not JSON. Text that begins like a protocol line is a damaged line."""
        match = _TYPE.match(text)
        tag = match[1] if match else ""
        return ParsedLine(None, tag in self._tags, tag in self._text_tags)

    def _parse_valid_fields(self, text: str, error: msgspec.ValidationError) -> ParsedLine[Line]:
        """Parse a line again without its invalid fields."""
        try:
            # Unlike msgspec, it accepts numbers of any size.
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self._handle_invalid_json(text)

        tag = value.get("type") if isinstance(value, dict) else None
        if not isinstance(tag, str) or tag not in self._tags:
            return ParsedLine(None)

        for _ in range(MAX_INVALID_FIELDS):
            if not _drop_invalid_field(value, str(error)):
                break

            try:
                return ParsedLine(read_value(value, self._type), has_invalid_fields=True)
            except msgspec.ValidationError as next_error:
                error = next_error

        return ParsedLine(None, True, tag in self._text_tags)


def _drop_invalid_field(value: object, error: str) -> bool:
    """Delete the innermost field on the path in the error; return False if there is none."""
    path = _PATH.search(error)
    if path is None:
        return False

    parent: dict[str, object] | None = None
    key = ""

    for name, index in _PATH_STEP.findall(path[1]):
        if name and isinstance(value, dict) and name in value:
            parent = value
            key = name
            value = value[name]
        elif index.isdigit() and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            # A value of a mapping: the error does not tell which one.
            break

    if parent is None or key == "type":
        return False

    del parent[key]
    return True


def to_token_count(reported: float | None) -> int:
    """Convert a token count as a program reports it: an integer, a fraction, NaN or nothing."""
    if reported is None or reported != reported or reported <= 0:
        return 0
    return int(min(reported, 1e15))
