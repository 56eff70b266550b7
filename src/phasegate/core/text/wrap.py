"""Wrap a line of text by words, for a terminal.

`status` loads this module: it imports almost nothing.
"""

from __future__ import annotations

_ESCAPE = "\x1b["


def wrap_line(line: str, width: int) -> list[str]:
    """Wrap a line that is longer than a terminal; later lines are indented under the first.

    Colour sequences take no room. A word that is longer than a line is not cut.
    """
    if _visible_length(line) <= width:
        return [line]

    text = line.lstrip(" ")
    indent = len(line) - len(text)
    later = " " * min(indent + 4, width // 2)
    lines = []
    current = " " * indent
    has_word = False
    for word in text.split(" "):
        if has_word and _visible_length(current) + 1 + _visible_length(word) > width:
            lines.append(current)
            current = later + word
        else:
            current += f" {word}" if has_word else word
        has_word = True

    return [*lines, current]


def _visible_length(text: str) -> int:
    """Return the number of characters without colour sequences."""
    if _ESCAPE not in text:
        return len(text)

    first, *rest = text.split(_ESCAPE)
    return len(first) + sum(len(part.partition("m")[2]) for part in rest)
