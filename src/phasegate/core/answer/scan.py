"""Scan an answer once from the left: exclude quoted spans, find markers in the rest.

Thoughts, code fences, comments and CDATA sections are quoted. The one that opens first wins, and
anything inside it is its text. Nothing is cut from the text, only offsets are recorded: so no
marker can be assembled across a gap, and a gap does not count as white space.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from phasegate.core.answer.lookalikes import REVIEW_PATTERN, spells_review
from phasegate.core.answer.vocabulary import TaskStatus, Verdict

_Search = Callable[[str, int], re.Match[str] | None]
_PendingMatch = tuple[int, re.Match[str], _Search]


class QuoteKind(StrEnum):
    """The kind of a quoted span."""

    THOUGHT = "thought"
    FENCE = "code fence"
    COMMENT = "comment"
    CDATA = "CDATA section"


class QuotedSpan(NamedTuple):
    """An excluded range, delimiters included, and the range between the delimiters."""

    kind: QuoteKind
    start: int
    end: int
    inner_start: int
    inner_end: int
    closed: bool


class Marker(NamedTuple):
    """A marker in its exact form, from column 1, alone on its line. A review has no task id."""

    start: int
    end: int
    task_id: str
    value: str


class ScanResult(NamedTuple):
    """Everything that one scan found, each list in the order of the text."""

    quoted: list[QuotedSpan]
    reviews: list[Marker]
    tasks: list[Marker]
    # Offsets of other occurrences of `<review`, in any spelling
    stray_reviews: list[int]
    stray_tasks: list[int]

    @property
    def unclosed(self) -> QuotedSpan | None:
        if self.quoted and not self.quoted[-1].closed:
            return self.quoted[-1]
        return None

    def quoted_around(self, offset: int) -> tuple[QuotedSpan | None, QuotedSpan | None]:
        """Return the last quoted span that starts at or before this offset, and the next one."""
        count = bisect_right(self.quoted, offset, key=lambda quoted: quoted.start)
        before = self.quoted[count - 1] if count else None
        after = self.quoted[count] if count < len(self.quoted) else None
        return before, after

    def is_visible(self, offset: int) -> bool:
        """Return True if this offset is outside of every quoted span."""
        before, _ = self.quoted_around(offset)
        return before is None or before.end <= offset


def _build_any_case_pattern(word: str) -> str:
    return "".join(
        f"[{letter.upper()}{letter}]" if letter.isalpha() else re.escape(letter) for letter in word
    )


_TASK_PATTERN = (
    r'<task_status id="(?P<task_id>[0-9]{1,6}\.[0-9]{1,6})">'
    rf"(?P<status>{'|'.join(TaskStatus)})</task_status>"
)
MARKER_PATTERN = rf"<review>(?P<verdict>{'|'.join(Verdict)})</review>|{_TASK_PATTERN}"
_EXACT_MARKER = re.compile(rf"(?:{MARKER_PATTERN})[ \t]*+(?=\n|\Z)")

# Every pattern is possessive and starts with one literal character, which the engine jumps to: no
# text takes long.
_THOUGHT_NAME = _build_any_case_pattern("thought") + r"(?=[\s/>])"
_TAG_START = re.compile(
    rf"<(?:(?P<comment>!--)|(?P<cdata>{_build_any_case_pattern('![cdata[')})"
    rf"|(?P<thought>{_THOUGHT_NAME}[^<>]*+>)"
    rf"|(?P<task>{_build_any_case_pattern('task_status')})|(?P<review>{REVIEW_PATTERN}))"
)
_THOUGHT_TAG = re.compile(rf"<(/?){_THOUGHT_NAME}[^<>]*+>")
# CommonMark: up to three blanks, then three or more backticks or tildes; no backtick after opening
# backticks.
_FENCE = {
    "`": r" {0,3}+(?P<fence>`{3,}+)[^`\n]*+(?=\n|\Z)",
    "~": r" {0,3}+(?P<fence>~{3,}+)[^\n]*+",
}
_FENCE_AT_START = {tick: re.compile(fence) for tick, fence in _FENCE.items()}
_FENCE_ON_NEW_LINE = {tick: re.compile(rf"\n{fence}") for tick, fence in _FENCE.items()}
_FENCE_END = {tick: re.compile(rf"\n {{0,3}}+({tick}{{3,}}+)[ \t]*+(?=\n|\Z)") for tick in _FENCE}


def scan_markers(text: str) -> ScanResult:
    """Find quoted spans, and every marker outside of them.

    The text must have LF line ends and no escape sequences.
    """
    result = ScanResult(quoted=[], reviews=[], tasks=[], stray_reviews=[], stray_tasks=[])
    # Searching for one character is twenty times faster than for a pattern, and rfind is twice as
    # fast as find.
    ahead = [
        (match.start(), match, search)
        for character, sign, search in _SEARCHES
        if character in text and text.rfind(sign) >= 0 and (match := search(text, 0))
    ]

    while ahead:
        _, first, _ = min(ahead, key=itemgetter(0))
        parse_quote = _QUOTE_PARSERS.get(first.lastgroup or "")
        if parse_quote is None:
            position = _record_marker(result, text, first)
        else:
            position = _record_quoted(result, parse_quote(text, first))

        ahead = list(_advance_searches(ahead, text, position))

    return result


def _advance_searches(
    ahead: list[_PendingMatch], text: str, position: int
) -> Iterator[_PendingMatch]:
    """Continue only the searches that the scan has passed, so that nothing is searched twice."""
    for pending in ahead:
        start, _, search = pending
        if start >= position:
            yield pending
        elif match := search(text, position):
            yield match.start(), match, search


def _find_next_tag(text: str, position: int) -> re.Match[str] | None:
    first = text.find("<", position)
    if first < 0:
        return None
    return _TAG_START.search(text, first)


def _find_next_fence(tick: str, text: str, position: int) -> re.Match[str] | None:
    if position == 0 and (at_start := _FENCE_AT_START[tick].match(text)):
        return at_start
    return _search_lines(_FENCE_ON_NEW_LINE[tick], tick * 3, text, position)


def _search_lines(
    pattern: re.Pattern[str], sign: str, text: str, position: int
) -> re.Match[str] | None:
    """Search from the first line that contains the sign.

    Matching at the start of every line takes twice as long.
    """
    first = text.find(sign, position)
    if first < 0:
        return None
    return pattern.search(text, max(text.rfind("\n", position, first), position))


def _record_quoted(result: ScanResult, quoted: QuotedSpan) -> int:
    result.quoted.append(quoted)
    return quoted.end


def _record_marker(result: ScanResult, text: str, match: re.Match[str]) -> int:
    """Record a marker, or a stray one that is not exact; return where to continue."""
    start = match.start()
    if start == 0 or text[start - 1] == "\n":
        exact = _EXACT_MARKER.match(text, start)
    else:
        exact = None

    if exact is None:
        _record_stray(result, match)
        return match.end()

    if exact["verdict"]:
        result.reviews.append(Marker(start, exact.end(), "", exact["verdict"]))
    else:
        result.tasks.append(Marker(start, exact.end(), exact["task_id"], exact["status"]))

    return exact.end()


def _record_stray(result: ScanResult, match: re.Match[str]) -> None:
    if match.lastgroup == "task":
        result.stray_tasks.append(match.start())
    elif spells_review(match[0]):
        result.stray_reviews.append(match.start())


def _parse_fence(text: str, opening: re.Match[str]) -> QuotedSpan:
    """Return the span of a code fence; it is unclosed if no closing line follows."""
    run = opening["fence"]
    start = opening.start("fence")
    inner_start = min(opening.end() + 1, len(text))
    end = opening.end()

    while closing := _search_lines(_FENCE_END[run[0]], run, text, end):
        end = closing.end()
        if len(closing[1]) >= len(run):
            return QuotedSpan(
                kind=QuoteKind.FENCE,
                start=start,
                end=end,
                inner_start=inner_start,
                inner_end=max(inner_start, closing.start()),
                closed=True,
            )

    return QuotedSpan(
        kind=QuoteKind.FENCE,
        start=start,
        end=len(text),
        inner_start=inner_start,
        inner_end=len(text),
        closed=False,
    )


def _parse_thought(text: str, opening: re.Match[str]) -> QuotedSpan:
    """Return the span of a `<thought>` element, with nested ones."""
    depth = 1
    for tag in _THOUGHT_TAG.finditer(text, opening.end()):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return QuotedSpan(
                kind=QuoteKind.THOUGHT,
                start=opening.start(),
                end=tag.end(),
                inner_start=opening.end(),
                inner_end=tag.start(),
                closed=True,
            )

    return QuotedSpan(
        kind=QuoteKind.THOUGHT,
        start=opening.start(),
        end=len(text),
        inner_start=opening.end(),
        inner_end=len(text),
        closed=False,
    )


def _parse_comment(text: str, opening: re.Match[str]) -> QuotedSpan:
    # `<!-->` is a complete comment in CommonMark and HTML.
    return _parse_until("-->", QuoteKind.COMMENT, text, opening, opening.start() + 2)


def _parse_cdata(text: str, opening: re.Match[str]) -> QuotedSpan:
    return _parse_until("]]>", QuoteKind.CDATA, text, opening, opening.end())


def _parse_until(
    delimiter: str, kind: QuoteKind, text: str, opening: re.Match[str], search_from: int
) -> QuotedSpan:
    """Return the span up to a delimiter; it is unclosed if the delimiter is missing."""
    end = text.find(delimiter, search_from)
    if end < 0:
        return QuotedSpan(
            kind=kind,
            start=opening.start(),
            end=len(text),
            inner_start=opening.end(),
            inner_end=len(text),
            closed=False,
        )

    return QuotedSpan(
        kind=kind,
        start=opening.start(),
        end=end + len(delimiter),
        inner_start=opening.end(),
        inner_end=end,
        closed=True,
    )


_QUOTE_PARSERS = {
    "fence": _parse_fence,
    "thought": _parse_thought,
    "comment": _parse_comment,
    "cdata": _parse_cdata,
}
_SEARCHES: list[tuple[str, str, _Search]] = [
    ("<", "<", _find_next_tag),
    ("`", "```", partial(_find_next_fence, "`")),
    ("~", "~~~", partial(_find_next_fence, "~")),
]
