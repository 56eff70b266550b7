"""Foreign text made safe to show: cut, and with nothing in it that a terminal would obey (M01)."""

from __future__ import annotations

import re

HEAD_LINES, TAIL_LINES, LONGEST_LINE = 20, 60, 300
_LOOK_AT = 100_000  # characters at each end: no more of a flood is looked at
MOST_NAMES = 20
# CSI; OSC, DCS, SOS, PM and APC up to their end or the end of the text; then any other escape or control character.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]?|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*+(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*+[0-~]?"
)
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def plain(text: str) -> str:
    """The text with its escape sequences taken out, lines ended by LF, and other invisible characters made visible."""
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSHOWABLE.sub("\ufffd", text)


def excerpt(text: str) -> str:
    """The first lines, where compilers say what is wrong, and the last, where test runners do."""
    if len(text) > 2 * _LOOK_AT:
        text = f"{text[:_LOOK_AT]}\n{text[-_LOOK_AT:]}"
    lines = [_shortened(line) for line in plain(text).strip("\n").split("\n")]
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if left_out > 0:
        lines[HEAD_LINES:-TAIL_LINES] = [f"[... {left_out} lines left out ...]"]
    return "\n".join(lines)


def one_line(text: str, most: int = 200) -> str:
    """Foreign text inside a sentence of ours: one line, cut."""
    line = plain(text[: 4 * most]).replace("\n", " ").replace("\t", " ").strip()
    return line if len(line) <= most else f"{line[:most]}..."


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Foreign names in a sentence: the first of them, and how many more."""
    shown = ", ".join(one_line(name) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
