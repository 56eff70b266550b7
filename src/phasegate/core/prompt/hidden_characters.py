"""Find characters that a user does not see but an agent reads.

These are invisible characters, characters that reorder text, and non-text characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from phasegate.core.prompt.document import ContextItem

# Zero-width space, marks, fillers; bidirectional controls; tags and variation selectors, in which
# sentences can be hidden. A joiner is normal inside emoji and some scripts, and suspicious only
# after ASCII; a byte-order mark is normal at the start.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_NON_TEXT = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"
_HIDDEN = re.compile(f"[{_INVISIBLE}{_NON_TEXT}]")
_UNSAFE_IN_NAME = re.compile(f'[{_INVISIBLE}{_NON_TEXT}\t\n\r"\\\\]')


class HiddenCharacter(NamedTuple):
    """A hidden character with its item and line."""

    item: str
    character: str
    line: int


def find_hidden_characters(item: str, text: str) -> Iterator[HiddenCharacter]:
    """Yield each hidden character of a text, in order; lines end at LF."""
    line = 1
    counted = 0

    for match in _HIDDEN.finditer(text):
        at = match.start()
        if _is_expected(match[0], text[at - 1 : at]):
            continue

        line += text.count("\n", counted, at)
        counted = at
        yield HiddenCharacter(item, describe_character(match[0]), line)


def find_hidden_in_text(item: str, text: str, limit: int) -> Iterator[HiddenCharacter]:
    """Yield at most `limit` hidden characters of a text."""
    return islice(find_hidden_characters(item, text), limit)


def find_hidden_in_item(item: ContextItem, limit: int) -> Iterator[HiddenCharacter]:
    """Yield the hidden characters of an item's name, as line 0, then those of its content."""
    name = item.name or ""
    in_name = (hidden._replace(line=0) for hidden in find_hidden_characters(name, name))
    return islice(
        chain(in_name, find_hidden_characters(item.name or item.type, item.content)), limit
    )


def _is_expected(character: str, before: str) -> bool:
    if character == "\ufeff":
        return not before
    return character in "\u200c\u200d" and not before.isascii()


def quote_name(name: str) -> str:
    r"""Return a name that stays on its line and shows every character.

    Unsafe names are quoted and escaped, as in `"a\u{202e}b"`.
    """
    if _UNSAFE_IN_NAME.search(name) or name != name.strip():
        return f'"{_UNSAFE_IN_NAME.sub(_escape_match, name)}"'
    return name


def describe_character(character: str) -> str:
    """Return `U+202E RIGHT-TO-LEFT OVERRIDE`; controls and lone surrogates have no name."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


def _escape_match(match: re.Match[str]) -> str:
    if match[0] in '"\\':
        return f"\\{match[0]}"
    return f"\\u{{{ord(match[0]):x}}}"
