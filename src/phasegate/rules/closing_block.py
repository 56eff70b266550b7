"""The next-steps or status block at the very end of an answer."""

from __future__ import annotations

from collections.abc import Iterator

from phasegate.rules.block import DELIMITER, KINDS, MOST_ITEMS, check_block

_LINES_ABOVE_THE_LAST = MOST_ITEMS + 2


def closing_block_start(text: str, after: int) -> int:
    """Where the block starts that ends the text and lies after this place; the length of the text if there is none."""
    end = len(text.rstrip(" \t\n"))
    if text.endswith(DELIMITER, after, end) and text[end : end + 1] in ("", "\n"):
        for start in _line_starts(text, after, end):
            if text.startswith(f"{DELIMITER}\n", start, end):
                return start if _is_block(text[start:end]) else len(text)
    return len(text)


def _is_block(text: str) -> bool:
    return any(not check_block(text, kind) for kind in KINDS)


def _line_starts(text: str, after: int, end: int) -> Iterator[int]:
    """The starts of the last lines, from the last one up. What shares its line with a quoted stretch starts none."""
    for _ in range(_LINES_ABOVE_THE_LAST + 1):
        end = text.rfind("\n", after, end)
        if end >= 0:
            yield end + 1
        elif after == 0:
            yield 0
        if end < 0:
            return
