"""Remove terminal escape sequences from untrusted text."""

from __future__ import annotations

import re
from typing import NamedTuple

# Sequences of ECMA-48, but none spans a line end, so none can hide a line. The `open` groups match,
# empty, where a control string has no end on its line. All quantifiers are possessive: a flood of
# ESC takes linear time.
_SEQUENCE = re.compile(
    "\x1b(?:"
    # OSC: titles, links, the clipboard
    r"\][^\x07\x1b\r\n]*+(?:\x07|\x1b\\|(?P<open_osc>))"
    # DCS, SOS, PM, APC
    r"|[PX^_][^\x1b\r\n]*+(?:\x1b\\|(?P<open_string>))"
    # CSI: colours, the cursor, erasing
    r"|\[[0-?]*+[ -/]*+[@-~]?"
    # Two or three characters, or a lone ESC
    r"|[ -/]*+[0-~]?)"
)
_STRING_START = re.compile("\x1b[]PX^_]")
_C1 = re.compile("[\x80-\x9f]")
_UTF8_C1 = re.compile(rb"\xc2[\x80-\x9f]")
# Remaining characters that move the cursor, ring the bell, change the writing direction, or cannot
# be encoded.
_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
SEQUENCE_MARK = "\x1b"


class StrippedText(NamedTuple):
    """A text without escape sequences.

    `marked` is the same text with one ESC in place of each sequence.
    """

    text: str
    marked: str
    # A control string has no end on its line: how much a terminal would hide is unknown
    has_open_string: bool


def strip_escapes(text: str) -> StrippedText:
    """Remove every escape sequence, and convert CR and CRLF line ends to LF.

    Also return the text with one ESC in place of each sequence, and whether a control string is
    unterminated.
    """
    text = _convert_c1_controls(text)
    if "\x1b" not in text:
        text = _normalize_line_ends(text)
        return StrippedText(text=text, marked=text, has_open_string=False)

    marked = _normalize_line_ends(_SEQUENCE.sub(SEQUENCE_MARK, text))
    return StrippedText(
        text=marked.replace(SEQUENCE_MARK, ""),
        marked=marked,
        has_open_string=_has_open_string(text),
    )


def sanitize_for_terminal(text: str) -> str:
    """Return the text in a form that is safe for a terminal, a log or a page."""
    return _UNSAFE_CHARACTERS.sub("\ufffd", strip_escapes(text).text)


def _convert_c1_controls(text: str) -> str:
    """Convert each C1 control character to the equivalent ESC sequence."""
    if text.isascii():
        return text

    # Searching the bytes is three times faster than a character class.
    data = text.encode("utf-8", "replace")
    if b"\xc2" not in data or _UTF8_C1.search(data) is None:
        return text

    return _C1.sub(lambda match: "\x1b" + chr(ord(match[0]) - 0x40), text)


def _has_open_string(text: str) -> bool:
    if _STRING_START.search(text) is None:
        return False
    return any(sequence.lastgroup for sequence in _SEQUENCE.finditer(text))


def _normalize_line_ends(text: str) -> str:
    if "\r" in text:
        return text.replace("\r\n", "\n").replace("\r", "\n")
    return text
