"""The lines of a Markdown document, with code fences told from prose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_CODE_SPAN = re.compile(r"`[^`]*`")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")


class MarkdownLine(NamedTuple):
    """A line of a document; `fence` is the info string of the code block it lies in, None in prose."""

    number: int
    text: str
    fence_info: str | None
    fence_line: int = 0


def iter_markdown_lines(text: str, first_line: int = 1) -> Iterator[MarkdownLine]:
    """Every line but the fences themselves and what a comment of several lines hides.

    A fence or a comment that is never closed runs to the end, as CommonMark has it.
    """
    mark = ""
    info = ""
    opened = 0
    commented = False

    for number, line in enumerate(
        text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), first_line
    ):
        if commented:
            commented = "-->" not in line
            continue

        if "```" in line or "~~~" in line:
            found = _FENCE.match(line)
        else:
            found = None

        if mark:
            if found and found[1].startswith(mark) and not found[2].strip():
                mark = ""
            else:
                yield MarkdownLine(number, line, info, opened)
        elif found and "`" not in found[2]:
            mark = found[1]
            info = found[2].strip()
            opened = number
        else:
            yield MarkdownLine(number, line, None)
            commented = "<!--" in line and _leaves_comment_open(line)


def _leaves_comment_open(line: str) -> bool:
    words = remove_code_spans(line)
    return words.rfind("<!--") > words.rfind("-->")


def remove_code_spans(line: str) -> str:
    """A line without its `code`."""
    return _CODE_SPAN.sub("", line)


def collapse_whitespace(text: str) -> str:
    """The text on one line, every run of blanks and line ends one space."""
    return " ".join(text.split())
