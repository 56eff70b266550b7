"""Iterate over the lines of a Markdown document, with code fences separated from prose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_CODE_SPAN = re.compile(r"`[^`]*`")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")


class MarkdownLine(NamedTuple):
    """A line of a document.

    `fence_info` is the info string of the code block that it is in, None in prose.
    """

    number: int
    text: str
    fence_info: str | None
    fence_line: int = 0


def iter_markdown_lines(text: str, first_line: int = 1) -> Iterator[MarkdownLine]:
    """Yield every line except for fences and the inside of multi-line comments.

    A fence or a comment that is never closed extends to the end, as in CommonMark.
    """
    mark = ""
    info = ""
    opened = 0
    commented = False

    text = text.replace("\r\n", "\n").replace("\r", "\n")

    for number, line in enumerate(text.split("\n"), first_line):
        if commented:
            commented = "-->" not in line
            continue

        has_fence = "```" in line or "~~~" in line
        fence = _FENCE.match(line) if has_fence else None
        if mark:
            if fence and fence[1].startswith(mark) and not fence[2].strip():
                mark = ""
            else:
                yield MarkdownLine(number, line, info, opened)
        elif fence and "`" not in fence[2]:
            mark = fence[1]
            info = fence[2].strip()
            opened = number
        else:
            yield MarkdownLine(number, line, None)
            commented = "<!--" in line and _leaves_comment_open(line)


def _leaves_comment_open(line: str) -> bool:
    prose = remove_code_spans(line)
    return prose.rfind("<!--") > prose.rfind("-->")


def remove_code_spans(line: str) -> str:
    """Return a line without its `code`."""
    return _CODE_SPAN.sub("", line)


def collapse_whitespace(text: str) -> str:
    """Return the text on one line, with every run of whitespace as one space."""
    return " ".join(text.split())
