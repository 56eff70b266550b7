"""One line of a program's stream, read with tolerance.

Programs change their streams from version to version.

A field that does not fit counts as absent; where the struct has no default for it, the line cannot
be read. So what must be there has no default, and bookkeeping such as token counts never decides.
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
    """A line, or None where it is none of the protocol, or one that cannot be read."""

    line: Line | None
    # Something of a line of the protocol could not be read
    has_invalid_fields: bool = False
    # And that may have been a piece of the answer
    loses_text: bool = False


class LineReader(Generic[Line]):
    """Reads the lines of one protocol: tagged structs, told apart by `type`.

    Lines of other types are skipped.

    `speaking` are the types that carry what the agent says.
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
        """No JSON.

        Programs print other things too, but not such that begin like a line of theirs.
        """
        begins = _TYPE.match(text)
        tag = begins[1] if begins else ""
        return ParsedLine(None, tag in self._tags, tag in self._text_tags)

    def _parse_valid_fields(self, text: str, error: msgspec.ValidationError) -> ParsedLine[Line]:
        try:
            # Takes numbers of any size
            found = json.loads(text)
        except (ValueError, RecursionError):
            return self._handle_invalid_json(text)

        if isinstance(found, dict):
            tag = found.get("type")
        else:
            tag = None

        if not isinstance(tag, str) or tag not in self._tags:
            return ParsedLine(None)

        for _ in range(MAX_INVALID_FIELDS):
            if not _drop_invalid_field(found, str(error)):
                break

            try:
                return ParsedLine(read_value(found, self._type), has_invalid_fields=True)
            except msgspec.ValidationError as another:
                error = another

        return ParsedLine(None, True, tag in self._text_tags)


def _drop_invalid_field(found: object, error: str) -> bool:
    """Take out what an error complains of: the innermost field that its path names.

    False: there is none.
    """
    path = _PATH.search(error)
    holder: dict[str, object] | None = None
    key = ""

    for name, index in _PATH_STEP.findall(path[1]) if path else ():
        if name and isinstance(found, dict) and name in found:
            holder = found
            key = name
            found = found[name]
        elif index.isdigit() and isinstance(found, list) and int(index) < len(found):
            found = found[int(index)]
        else:
            # A value of a mapping: which one is not said
            break

    if holder is None or key == "type":
        return False

    del holder[key]
    return True


def to_token_count(stated: float | None) -> int:
    """A number of tokens, as a program states it: whole, a fraction, or nothing."""
    if stated is None or stated != stated or stated <= 0:
        return 0
    return int(min(stated, 1e15))
