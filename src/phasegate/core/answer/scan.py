"""One pass over an answer from the left.

What is quoted is taken out, what is left is searched for markers.

Quoted is what stands in a thought, a code fence, a comment or a CDATA section; the one that opens
first wins, and what looks like another one inside it is its text. Nothing is cut from the text,
places are set apart: so nothing can be assembled across a gap, and a gap is never blank.
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
    """What can be quoted in."""

    THOUGHT = "thought"
    FENCE = "code fence"
    COMMENT = "comment"
    CDATA = "CDATA section"


class QuotedSpan(NamedTuple):
    """A stretch that is taken out, delimiters included, and the stretch between them."""

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
    """What one pass found, each list in the order of the text."""

    quoted: list[QuotedSpan]
    reviews: list[Marker]
    tasks: list[Marker]
    # Where another `<review` is left, in whatever spelling
    stray_reviews: list[int]
    stray_tasks: list[int]

    @property
    def unclosed(self) -> QuotedSpan | None:
        if self.quoted and not self.quoted[-1].closed:
            return self.quoted[-1]
        return None

    def quoted_around(self, place: int) -> tuple[QuotedSpan | None, QuotedSpan | None]:
        """The last quoted stretch that starts at or before this place, and the next one."""
        count = bisect_right(self.quoted, place, key=lambda quoted: quoted.start)
        return self.quoted[count - 1] if count else None, self.quoted[count] if count < len(
            self.quoted
        ) else None

    def is_visible(self, place: int) -> bool:
        """Is this place outside of everything that is taken out?"""
        before, _ = self.quoted_around(place)
        return before is None or before.end <= place


def _build_any_case_pattern(word: str) -> str:
    return "".join(
        f"[{letter.upper()}{letter}]" if letter.isalpha() else re.escape(letter) for letter in word
    )


_TASK_PATTERN = rf'<task_status id="(?P<task_id>[0-9]{{1,6}}\.[0-9]{{1,6}})">(?P<status>{"|".join(TaskStatus)})</task_status>'
MARKER_PATTERN = rf"<review>(?P<verdict>{'|'.join(Verdict)})</review>|{_TASK_PATTERN}"
_EXACT_MARKER = re.compile(rf"(?:{MARKER_PATTERN})[ \t]*+(?=\n|\Z)")

# All of this is possessive and starts with one literal character, which the engine jumps to: no
# shape of text is slow.
_THOUGHT_NAME = _build_any_case_pattern("thought") + r"(?=[\s/>])"
_TAG_START = re.compile(
    rf"<(?:(?P<comment>!--)|(?P<cdata>{_build_any_case_pattern('![cdata[')})|(?P<thought>{_THOUGHT_NAME}[^<>]*+>)"
    rf"|(?P<task>{_build_any_case_pattern('task_status')})|(?P<review>{REVIEW_PATTERN}))"
)
_THOUGHT_TAG = re.compile(rf"<(/?){_THOUGHT_NAME}[^<>]*+>")
# CommonMark: up to three blanks, three backticks or tildes or more; no backtick in what follows
# opening backticks.
_FENCE = {
    "`": r" {0,3}+(?P<fence>`{3,}+)[^`\n]*+(?=\n|\Z)",
    "~": r" {0,3}+(?P<fence>~{3,}+)[^\n]*+",
}
_FENCE_AT_START = {tick: re.compile(fence) for tick, fence in _FENCE.items()}
_FENCE_ON_NEW_LINE = {tick: re.compile(rf"\n{fence}") for tick, fence in _FENCE.items()}
_FENCE_END = {tick: re.compile(rf"\n {{0,3}}+({tick}{{3,}}+)[ \t]*+(?=\n|\Z)") for tick in _FENCE}


def scan_markers(text: str) -> ScanResult:
    """Find what is quoted and every marker outside of it.

    The text has LF line ends and no escape sequences.
    """
    found = ScanResult(quoted=[], reviews=[], tasks=[], stray_reviews=[], stray_tasks=[])
    # One character is looked for twenty times faster than a pattern, and from the right twice as
    # fast as from the left.
    ahead = [
        (match.start(), match, search)
        for character, sign, search in _SEARCHES
        if character in text and text.rfind(sign) >= 0 and (match := search(text, 0))
    ]

    while ahead:
        _, first, _ = min(ahead, key=itemgetter(0))
        take_out = _QUOTE_PARSERS.get(first.lastgroup or "")
        if take_out is None:
            position = _record_marker(found, text, first)
        else:
            position = _record_quoted(found, take_out(text, first))

        ahead = list(_advance_searches(ahead, text, position))

    return found


def _advance_searches(
    ahead: list[_PendingMatch], text: str, position: int
) -> Iterator[_PendingMatch]:
    """Each search goes on only when the scan has passed what it found: no place is searched twice."""
    for found in ahead:
        start, _, search = found
        if start >= position:
            yield found
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
    """Search from the first line that has the sign.

    To look at the start of every line takes twice as long.
    """
    first = text.find(sign, position)
    if first < 0:
        return None
    return pattern.search(text, max(text.rfind("\n", position, first), position))


def _record_quoted(found: ScanResult, quoted: QuotedSpan) -> int:
    found.quoted.append(quoted)
    return quoted.end


def _record_marker(found: ScanResult, text: str, place: re.Match[str]) -> int:
    start = place.start()
    if start == 0 or text[start - 1] == "\n":
        exact = _EXACT_MARKER.match(text, start)
    else:
        exact = None

    if exact is None:
        _record_stray(found, place)
        return place.end()

    if exact["verdict"]:
        found.reviews.append(Marker(start, exact.end(), "", exact["verdict"]))
    else:
        found.tasks.append(Marker(start, exact.end(), exact["task_id"], exact["status"]))

    return exact.end()


def _record_stray(found: ScanResult, place: re.Match[str]) -> None:
    if place.lastgroup == "task":
        found.stray_tasks.append(place.start())
    elif spells_review(place[0]):
        found.stray_reviews.append(place.start())


def _parse_fence(text: str, opening: re.Match[str]) -> QuotedSpan:
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
    # `<!-->` is a whole comment, as CommonMark and HTML have it.
    return _parse_until("-->", QuoteKind.COMMENT, text, opening, opening.start() + 2)


def _parse_cdata(text: str, opening: re.Match[str]) -> QuotedSpan:
    return _parse_until("]]>", QuoteKind.CDATA, text, opening, opening.end())


def _parse_until(
    delimiter: str, kind: QuoteKind, text: str, opening: re.Match[str], search_from: int
) -> QuotedSpan:
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
