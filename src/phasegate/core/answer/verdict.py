"""Which verdict an answer gives in a phase, and all that keeps a PASS from counting."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from phasegate.core.answer.lookalikes import encoded_reviews
from phasegate.core.answer.markers import AnswerReading
from phasegate.core.answer.scan import QuoteKind
from phasegate.core.answer.vocabulary import ALLOWED, Verdict


class AnswerError(StrEnum):
    """Why an answer is none."""

    MISSING = "MissingReviewMarker"
    FOREIGN = "ForeignVerdict"
    CUT_OFF = "CutOff"
    DOUBTFUL = "DoubtfulPass"


class Judgement(NamedTuple):
    """A verdict or an error, never both; in a phase that needs no marker, perhaps neither."""

    verdict: Verdict | None
    error: AnswerError | None
    reason: str  # the error in words that the agent can act on


_SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}
_NEEDS_NO_MARKER = frozenset({"plan", "implement"})


def judge(reading: AnswerReading, phase: str) -> Judgement:
    """The most severe verdict of those given; a foreign one, none, or a doubtful PASS is an error."""
    given = [Verdict(marker.word) for marker in reading.scan.reviews]
    foreign = [verdict for verdict in given if verdict not in ALLOWED[phase]]
    if foreign:
        return _error(AnswerError.FOREIGN, f"{foreign[0]} is not a verdict of the phase {phase}. {_how_to_end(phase)}")
    if not given:
        return _without_verdict(reading, phase)
    worst = max(given, key=_SEVERITY.__getitem__)
    if worst is not Verdict.PASS:
        return Judgement(worst, None, "")
    for error, objection in _objections(reading):
        return _error(error, f"PASS does not count: {objection}. {_how_to_end(phase)}")
    return Judgement(Verdict.PASS, None, "")


def _error(error: AnswerError, reason: str) -> Judgement:
    return Judgement(None, error, reason)


def _without_verdict(reading: AnswerReading, phase: str) -> Judgement:
    if phase == "plan" and reading.cut_off:  # a NEEDS_REVISION may be among what was lost
        return _error(AnswerError.CUT_OFF, f"the answer is cut off: {reading.cut_off}. {_how_to_end(phase)}")
    if phase in _NEEDS_NO_MARKER:
        return Judgement(None, None, "")
    why = "there is no <review> marker"
    if reading.cut_off:
        why = f"there is no <review> marker, and the answer is cut off: {reading.cut_off}"
    elif reading.scan.stray_reviews:
        line = reading.line_of(reading.scan.stray_reviews[0])
        why = f"the <review> on line {line} is not in its exact form, from column 1, alone on its line"
    return _error(AnswerError.MISSING, f"{why}. {_how_to_end(phase)}")


def _objections(reading: AnswerReading) -> Iterator[tuple[AnswerError, str]]:
    """Every reason why the PASS of this answer does not count."""
    if reading.cut_off:
        yield AnswerError.CUT_OFF, f"the answer is cut off: {reading.cut_off}"
    for comment in _ambiguous_comments(reading):
        yield AnswerError.DOUBTFUL, f"where the comment on line {reading.line_of(comment)} ends depends on the reader"
    for other in _other_reviews(reading):
        yield AnswerError.DOUBTFUL, f"there is another <review on line {reading.line_of(other)}"
    if not _is_last(reading):
        yield AnswerError.DOUBTFUL, "it is not the last line"
    if reading.result and reading.result.response and not reading.result.response.success:
        yield AnswerError.DOUBTFUL, "the JSON result says that the work failed"


def _ambiguous_comments(reading: AnswerReading) -> Iterator[int]:
    """Comments that HTML ends where XML goes on: `<!-->`, `<!--->`, and one that holds `--!>`."""
    for quoted in reading.scan.quoted:
        is_at_once_closed = quoted.closed and quoted.inner_end < quoted.inner_start
        if quoted.kind is QuoteKind.COMMENT and (
            is_at_once_closed or "--!>" in reading.text[quoted.inner_start : quoted.inner_end]
        ):
            yield quoted.start


def _other_reviews(reading: AnswerReading) -> Iterator[int]:
    yield from (marker.start for marker in reading.scan.reviews[:-1])
    yield from reading.scan.stray_reviews
    yield from (place for place in encoded_reviews(reading.text) if reading.scan.is_visible(place))


def _is_last(reading: AnswerReading) -> bool:
    """Does nothing follow the last marker but blanks, the JSON result and the closing block, in this order?"""
    start, end = reading.scan.reviews[-1].end, reading.block_start
    result, home = reading.result, reading.result_home
    if result is None or result.start < start:
        return reading.is_blank(start, end)
    if home is None:
        return reading.is_blank(start, result.start) and reading.is_blank(result.end, end)
    return (
        reading.is_blank(start, home.start)
        and reading.is_blank(home.inner_start, result.start)
        and reading.is_blank(result.end, home.inner_end)
        and reading.is_blank(home.end, end)
    )


def _how_to_end(phase: str) -> str:
    if not ALLOWED[phase]:
        return "Give no <review> marker in this phase: answer with task statuses and the JSON result."
    markers = " or ".join(f"<review>{verdict}</review>" for verdict in Verdict if verdict in ALLOWED[phase])
    return f"End the answer with exactly one of {markers}, from column 1, alone on the last line, and nowhere else."
