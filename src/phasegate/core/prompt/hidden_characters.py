"""Characters that a person does not see and an agent reads.

Invisible, reordering, and what is no text at all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from phasegate.core.prompt.document import ContextItem

# Zero-width space, marks, fillers; bidirectional controls; tags and variation selectors, in which
# sentences can hide. A joiner is usual inside emoji and some scripts, and only odd after ASCII; a
# byte-order mark is usual at the start.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_NON_TEXT = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"
_HIDDEN = re.compile(f"[{_INVISIBLE}{_NON_TEXT}]")
_UNSAFE_IN_NAME = re.compile(f'[{_INVISIBLE}{_NON_TEXT}\t\n\r"\\\\]')
# The same on UTF-8 from which ASCII was taken out, and somewhat wider: only what it finds is looked
# at closely.
_LIKELY_HIDDEN = re.compile(
    rb"\xc2[\x80-\x9f\xad]|\xcd\x8f|\xd8\x9c|\xe1(?:\x85[\x9f\xa0]|\x9e[\xb4\xb5]|\xa0\x8e)|\xe2(?:\x80[\x8b-\x8f\xa8-\xae]|\x81[\xa0-\xaf])"
    rb"|\xe3\x85\xa4|\xef(?:\xbb\xbf|\xbe\xa0|\xbf[\xb9-\xbb])|\xf3\xa0"
)
_LEAD_BYTES = b"\xc2\xcd\xd8\xe1\xe2\xe3\xef\xf3"
_ASCII = bytes(range(0x80))


class HiddenCharacter(NamedTuple):
    """One hidden character: in which item, which character, on which line."""

    item: str
    character: str
    line: int


def find_hidden_characters(item: str, text: str, first_line: int = 1) -> Iterator[HiddenCharacter]:
    """Each hidden character of a text, in order; lines end at LF."""
    line = first_line
    counted = 0

    for match in _HIDDEN.finditer(text):
        at = match.start()
        if _is_expected(match[0], text[at - 1 : at], first_line):
            continue

        line += text.count("\n", counted, at)
        counted = at
        yield HiddenCharacter(item, describe_character(match[0]), line)


def find_hidden_in_text(item: str, text: str, limit: int) -> Iterator[HiddenCharacter]:
    """At most so many of them."""
    return islice(find_hidden_characters(item, text), limit)


def find_hidden_in_item(item: ContextItem, limit: int) -> Iterator[HiddenCharacter]:
    """Those of an item's name, at line 0, and then those of its content."""
    name = item.name or ""
    in_name = (found._replace(line=0) for found in find_hidden_characters(name, name))
    return islice(
        chain(in_name, find_hidden_characters(item.name or item.type, item.content)), limit
    )


def _is_expected(character: str, before: str, first_line: int) -> bool:
    if character == "\ufeff":
        return not before and first_line == 1
    return character in "\u200c\u200d" and not before.isascii()


def may_contain_hidden(raw: bytes) -> bool:
    """Whether a closer look at these bytes of UTF-8, free of ASCII controls, is worth its time.

    At most 1 ns a byte.
    """
    if 0x7F in raw:
        return True
    return (
        not raw.isascii()
        and any(map(raw.__contains__, _LEAD_BYTES))
        and _LIKELY_HIDDEN.search(raw.translate(None, _ASCII)) is not None
    )


def quote_name(name: str) -> str:
    r"""A name that stays on its line and shows what it holds.

    `"a\u{202e}b"` where it would hide or break out.
    """
    if _UNSAFE_IN_NAME.search(name) or name != name.strip():
        return f'"{_UNSAFE_IN_NAME.sub(_escape_match, name)}"'
    return name


def describe_character(character: str) -> str:
    """`U+202E RIGHT-TO-LEFT OVERRIDE`; a control character and half a pair have no name."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


def _escape_match(match: re.Match[str]) -> str:
    if match[0] in '"\\':
        return f"\\{match[0]}"
    return f"\\u{{{ord(match[0]):x}}}"
