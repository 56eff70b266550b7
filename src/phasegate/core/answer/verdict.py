"""Decide the verdict of an answer in a phase, and whether its PASS counts."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from phasegate.core.answer.lookalikes import find_encoded_reviews
from phasegate.core.answer.markers import ScannedAnswer
from phasegate.core.answer.scan import QuoteKind
from phasegate.core.answer.vocabulary import ALLOWED_VERDICTS, Verdict


class AnswerError(StrEnum):
    """The reason why an answer has no usable verdict."""

    MISSING = "MissingReviewMarker"
    FOREIGN = "ForeignVerdict"
    CUT_OFF = "CutOff"
    DOUBTFUL = "DoubtfulPass"


class VerdictResult(NamedTuple):
    """A verdict or an error, never both; neither is possible in a phase that needs no marker."""

    verdict: Verdict | None
    error: AnswerError | None
    # What the agent should do about the error
    reason: str


_SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}
_PHASES_WITHOUT_MARKER = frozenset({"plan", "implement"})


def decide_verdict(reading: ScannedAnswer, phase: str) -> VerdictResult:
    """Return the most severe verdict that was given.

    A verdict of another phase, a missing verdict and a doubtful PASS are errors.
    """
    given = [Verdict(marker.value) for marker in reading.scan.reviews]
    foreign = [verdict for verdict in given if verdict not in ALLOWED_VERDICTS[phase]]

    if foreign:
        return _make_error(
            AnswerError.FOREIGN,
            f"{foreign[0]} is not a verdict of the phase {phase}. {_format_ending_hint(phase)}",
        )

    if not given:
        return _decide_without_marker(reading, phase)

    worst = max(given, key=_SEVERITY.__getitem__)
    if worst is not Verdict.PASS:
        return VerdictResult(worst, None, "")

    for error, objection in _find_objections(reading):
        return _make_error(error, f"PASS does not count: {objection}. {_format_ending_hint(phase)}")

    return VerdictResult(Verdict.PASS, None, "")


def _make_error(error: AnswerError, reason: str) -> VerdictResult:
    return VerdictResult(None, error, reason)


def _decide_without_marker(reading: ScannedAnswer, phase: str) -> VerdictResult:
    """Return the result of an answer without an exact <review> marker."""
    # A NEEDS_REVISION may be in the lost part
    if phase == "plan" and reading.cut_off_reason:
        return _make_error(
            AnswerError.CUT_OFF,
            f"the answer is cut off: {reading.cut_off_reason}. {_format_ending_hint(phase)}",
        )

    if phase in _PHASES_WITHOUT_MARKER:
        return VerdictResult(None, None, "")

    why = "there is no <review> marker"
    if reading.cut_off_reason:
        why = f"there is no <review> marker, and the answer is cut off: {reading.cut_off_reason}"
    elif reading.scan.stray_reviews:
        line = reading.line_number_at(reading.scan.stray_reviews[0])
        why = f"the <review> on line {line} is not exact: it must be alone, from column 1"

    return _make_error(AnswerError.MISSING, f"{why}. {_format_ending_hint(phase)}")


def _find_objections(reading: ScannedAnswer) -> Iterator[tuple[AnswerError, str]]:
    """Yield every reason why the PASS of this answer does not count."""
    if reading.cut_off_reason:
        yield AnswerError.CUT_OFF, f"the answer is cut off: {reading.cut_off_reason}"

    for comment in _find_ambiguous_comments(reading):
        yield (
            AnswerError.DOUBTFUL,
            f"the end of the comment on line {reading.line_number_at(comment)} is ambiguous",
        )

    for other in _find_other_reviews(reading):
        yield (
            AnswerError.DOUBTFUL,
            f"there is another <review on line {reading.line_number_at(other)}",
        )

    if not _is_marker_last(reading):
        yield AnswerError.DOUBTFUL, "it is not the last line"
    if reading.result and reading.result.response and not reading.result.response.success:
        yield AnswerError.DOUBTFUL, "the JSON result reports a failure"


def _find_ambiguous_comments(reading: ScannedAnswer) -> Iterator[int]:
    """Yield comments that HTML ends before XML does: `<!-->`, `<!--->`, or with `--!>` inside."""
    for quoted in reading.scan.quoted:
        is_empty = quoted.closed and quoted.inner_end < quoted.inner_start
        if quoted.kind is QuoteKind.COMMENT and (
            is_empty or "--!>" in reading.text[quoted.inner_start : quoted.inner_end]
        ):
            yield quoted.start


def _find_other_reviews(reading: ScannedAnswer) -> Iterator[int]:
    yield from (marker.start for marker in reading.scan.reviews[:-1])
    yield from reading.scan.stray_reviews
    yield from (
        offset for offset in find_encoded_reviews(reading.text) if reading.scan.is_visible(offset)
    )


def _is_marker_last(reading: ScannedAnswer) -> bool:
    """Return True if only blanks, the JSON result and the closing block follow the last marker.

    They must come in this order.
    """
    start = reading.scan.reviews[-1].end
    end = reading.block_start
    result = reading.result
    fence = reading.result_fence
    if result is None or result.start < start:
        return reading.is_blank(start, end)
    if fence is None:
        return reading.is_blank(start, result.start) and reading.is_blank(result.end, end)

    return (
        reading.is_blank(start, fence.start)
        and reading.is_blank(fence.inner_start, result.start)
        and reading.is_blank(result.end, fence.inner_end)
        and reading.is_blank(fence.end, end)
    )


def _format_ending_hint(phase: str) -> str:
    """Say how an answer of this phase must end."""
    if not ALLOWED_VERDICTS[phase]:
        return (
            "Give no <review> marker in this phase: answer with task statuses and the JSON result."
        )

    markers = " or ".join(
        f"<review>{verdict}</review>" for verdict in Verdict if verdict in ALLOWED_VERDICTS[phase]
    )
    return (
        f"End the answer with exactly one of {markers}, from column 1, alone on the last line,"
        " and nowhere else."
    )
