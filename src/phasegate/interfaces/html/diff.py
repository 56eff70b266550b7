"""Parse a unified diff into lines with their numbers, for display."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class DiffLine(NamedTuple):
    """A line of a diff; the numbers are empty for headers, and on the side that lacks it."""

    # added, removed, hunk, file, or empty for context
    kind: str
    old: str
    new: str
    text: str


def parse_diff(content: str) -> Iterator[DiffLine]:
    """Yield the lines of a diff.

    The header of a hunk says how many lines it has: a removed line `-- x` is not a file name.
    """
    old = new = old_end = new_end = 0
    for text in content.splitlines():
        if old >= old_end and new >= new_end:
            if match := _HUNK.match(text):
                old, new = int(match[1]), int(match[3])
                old_end = old + int(match[2] or 1)
                new_end = new + int(match[4] or 1)
            yield DiffLine("hunk" if text.startswith("@@") else "file", "", "", text)
        elif text.startswith("+"):
            yield DiffLine("added", "", str(new), text)
            new += 1
        elif text.startswith("-"):
            yield DiffLine("removed", str(old), "", text)
            old += 1
        elif text.startswith("\\"):
            yield DiffLine("", "", "", text)
        else:
            yield DiffLine("", str(old), str(new), text)
            old += 1
            new += 1
