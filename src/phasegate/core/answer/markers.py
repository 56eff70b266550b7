"""Locate everything in an answer that the verdict is decided on.

That is markers, quoted spans, the JSON result and the closing block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.core.answer.block import BLOCK_KINDS, DELIMITER, MAX_ITEMS, check_block
from phasegate.core.answer.json_result import RESULT_KEYS, FoundResult, find_last_result
from phasegate.core.answer.scan import (
    MARKER_PATTERN,
    Marker,
    QuotedSpan,
    QuoteKind,
    ScanResult,
    scan_markers,
)
from phasegate.core.text.escapes import SEQUENCE_MARK, StrippedText, strip_escapes

_MARKER_LINE = re.compile(rf"\n{SEQUENCE_MARK}*+({MARKER_PATTERN})[ \t{SEQUENCE_MARK}]*+(?=\n|\Z)")


class ScannedAnswer(NamedTuple):
    """Everything that was found in an answer."""

    text: str
    scan: ScanResult
    result: FoundResult | None
    # The code fence that contains the result, if any
    result_fence: QuotedSpan | None
    result_error: str | None
    block_start: int
    # How the answer was cut off; empty if it was not
    cut_off_reason: str

    def line_number_at(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def is_blank(self, start: int, end: int) -> bool:
        """Return True if a range has only blanks and line ends; a quoted span is not blank."""
        return not self.text[start:end].strip(" \t\n")


class _ResultSearch(NamedTuple):
    valid: FoundResult | None
    fence: QuotedSpan | None
    error: str | None


def scan_answer(text: str, truncated: bool) -> ScannedAnswer:
    """Strip escape sequences, then find quoted spans and markers, then result and closing block."""
    stripped = strip_escapes(text)
    scan = scan_markers(stripped.text)
    if stripped.marked is not stripped.text:
        scan = _reject_assembled_markers(scan, stripped)

    result = _find_unquoted_result(stripped.text, scan)
    block_start = find_closing_block(stripped.text, scan.quoted[-1].end if scan.quoted else 0)
    reading = ScannedAnswer(
        text=stripped.text,
        scan=scan,
        result=result.valid,
        result_fence=result.fence,
        result_error=result.error,
        block_start=block_start,
        cut_off_reason="",
    )

    return reading._replace(
        cut_off_reason=_describe_cut_off(reading, stripped.has_open_string, truncated)
    )


def _reject_assembled_markers(scan: ScanResult, stripped: StrippedText) -> ScanResult:
    """Mark as stray the markers that exist only because escape sequences were stripped.

    Markers that were complete before are kept.
    """
    whole = Counter(match[1] for match in _MARKER_LINE.finditer("\n" + stripped.marked))
    now = Counter(match[1] for match in _MARKER_LINE.finditer("\n" + stripped.text))
    assembled = {marker for marker, count in now.items() if whole[marker] != count}

    def is_whole(marker: Marker) -> bool:
        return stripped.text[marker.start : marker.end].rstrip(" \t") not in assembled

    return scan._replace(
        reviews=[marker for marker in scan.reviews if is_whole(marker)],
        tasks=[marker for marker in scan.tasks if is_whole(marker)],
        stray_reviews=scan.stray_reviews
        + [marker.start for marker in scan.reviews if not is_whole(marker)],
        stray_tasks=scan.stray_tasks
        + [marker.start for marker in scan.tasks if not is_whole(marker)],
    )


def _find_unquoted_result(text: str, scan: ScanResult) -> _ResultSearch:
    """Find the last valid result that is unquoted or in a code fence for JSON.

    Without a valid one, return the problem of the last candidate.
    """
    error = None
    if "{" in text:
        mentions = {key: text.rfind(key) for key in RESULT_KEYS}
    else:
        mentions = {}

    while (offset := max(mentions.values(), default=-1)) >= 0:
        start, end, fence = _find_result_range(text, scan, offset)
        result = find_last_result(text, start, end)
        if result is not None and result.response is not None:
            return _ResultSearch(result, fence, None)
        if result is not None and error is None:
            error = f"line {text.count(chr(10), 0, result.start) + 1}: {result.problem}"

        # Each key is searched further up only where it was not searched before, so nothing is
        # searched twice.
        start = min(start, offset)
        mentions = {
            key: at if at < start else text.rfind(key, 0, start) for key, at in mentions.items()
        }

    return _ResultSearch(None, None, error)


def _find_result_range(
    text: str, scan: ScanResult, offset: int
) -> tuple[int, int, QuotedSpan | None]:
    """Return the range around an offset in which a result may be.

    It is between two quoted spans, or in a code fence for JSON; it is empty in any other span.
    """
    before, after = scan.quoted_around(offset)
    if before is None or before.end <= offset:
        start = before.end if before else 0
        end = after.start if after else len(text)
        return start, end, None

    if (
        before.kind is QuoteKind.FENCE
        and before.closed
        and _get_fence_language(text, before) in ("", "json")
    ):
        return before.inner_start, before.inner_end, before

    return before.start, before.start, before


def _get_fence_language(text: str, fence: QuotedSpan) -> str:
    return text[fence.start : fence.inner_start].strip().lstrip(text[fence.start]).strip().lower()


def _describe_cut_off(reading: ScannedAnswer, in_control_string: bool, truncated: bool) -> str:
    if truncated:
        return "output was lost"
    if unclosed := reading.scan.unclosed:
        line = reading.line_number_at(unclosed.start)
        return f"the {unclosed.kind} that opens on line {line} is never closed"
    if in_control_string:
        return "a terminal control string is not ended on its line"
    return ""


_MAX_LINES_ABOVE_LAST = MAX_ITEMS + 2


def find_closing_block(text: str, after: int) -> int:
    """Return the start of the block that ends the text and comes after `after`.

    Return the length of the text if there is none.
    """
    end = len(text.rstrip(" \t\n"))

    if text.endswith(DELIMITER, after, end) and text[end : end + 1] in ("", "\n"):
        for start in _iter_last_line_starts(text, after, end):
            if text.startswith(f"{DELIMITER}\n", start, end):
                if _is_block(text[start:end]):
                    return start
                return len(text)

    return len(text)


def _is_block(text: str) -> bool:
    return any(not check_block(text, kind) for kind in BLOCK_KINDS)


def _iter_last_line_starts(text: str, after: int, end: int) -> Iterator[int]:
    """Yield the starts of the last lines, from the last one up.

    The line that a quoted span ends on is not included.
    """
    for _ in range(_MAX_LINES_ABOVE_LAST + 1):
        end = text.rfind("\n", after, end)
        if end >= 0:
            yield end + 1
        elif after == 0:
            yield 0

        if end < 0:
            return
