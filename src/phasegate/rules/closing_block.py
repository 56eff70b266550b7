"""The next-steps or status block at the very end of an answer, in its exact form."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ACTION = "[!-~][ -~]*+"
_BLOCK = re.compile(
    "---\n"
    rf"(?:SUGGESTED NEXT STEPS:\n  \[1\] {_ACTION}\n  \[2\] {_ACTION}\n(?:  \[3\] {_ACTION}\n(?:  \[4\] {_ACTION}\n)?)?"
    rf"|STATUS: {_ACTION}\n)"
    "---"
)
_MOST_LINES = 7


def closing_block_start(text: str, after: int) -> int:
    """Where the block starts that ends the text and lies after this place; the length of the text if there is none."""
    end = len(text.rstrip(" \t\n"))
    if text.endswith("---", after, end) and text[end : end + 1] in ("", "\n"):
        for start in _line_starts_before(text, after, end):
            if _BLOCK.fullmatch(text, start, end):
                return start
    return len(text)


def _line_starts_before(text: str, after: int, end: int) -> Iterator[int]:
    """The starts of the last few lines, from the last one up; the first one only if nothing stands before it."""
    for _ in range(_MOST_LINES):
        end = text.rfind("\n", after, end)
        if end < 0:
            break
        yield end + 1
    if end < 0 and after == 0:
        yield 0
