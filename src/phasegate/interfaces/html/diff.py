"""Parse a unified diff into lines with their numbers, for display."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


class DiffLine(NamedTuple):
    """A line of a diff; the numbers are empty for headers, and on the side that lacks it."""

    # added, removed, hunk, file, or empty for context
    kind: str
    old: str
    new: str
    text: str


def parse_diff(content: str) -> Iterator[DiffLine]:
    """Yield the lines of a diff."""
    old = new = 0
    in_hunk = False
    for text in content.splitlines():
        if match := _HUNK.match(text):
            old, new = int(match[1]), int(match[2])
            in_hunk = True
            yield DiffLine("hunk", "", "", text)
        elif not in_hunk or text.startswith(("diff --git", "--- ", "+++ ", "index ")):
            in_hunk = in_hunk and not text.startswith("diff --git")
            yield DiffLine("file", "", "", text)
        elif text.startswith("+"):
            yield DiffLine("added", "", str(new), text)
            new += 1
        elif text.startswith("-"):
            yield DiffLine("removed", str(old), "", text)
            old += 1
        else:
            yield DiffLine("", str(old), str(new), text)
            old += 1
            new += 1
