"""Parse untrusted text from an agent into a verdict, task statuses and a result.

The grammar is in docs/reference/answers.md. Anything ambiguous counts as a no.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from phasegate.core.answer.json_result import AgentResponse
from phasegate.core.answer.markers import ScannedAnswer, scan_answer
from phasegate.core.answer.scan import Marker, QuoteKind
from phasegate.core.answer.verdict import AnswerError, decide_verdict
from phasegate.core.answer.vocabulary import ALLOWED_VERDICTS, TaskStatus, Verdict
from phasegate.core.text.escapes import strip_escapes
from phasegate.errors import ConfigError

_MAX_WARNINGS_PER_KIND = 5
_MAX_BLOCKERS = 50
_MAX_BLOCKER_CHARACTERS = 1_000
_OMISSION_MARK = "[...]"
_BLOCKER = re.compile(r"^[ \t]*+(BLOCKER:)[ \t]*+(.*)$", re.MULTILINE)
_BLANK_TO_LINE_END = re.compile(r"[ \t]*+(?:\n|\Z)")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed answer. It never has both a verdict and an error."""

    verdict: Verdict | None
    error: AnswerError | None
    # What the agent should do about the error
    reason: str
    task_statuses: dict[str, TaskStatus]
    # For display and later prompts: no thoughts, no escape sequences, LF line ends
    text: str
    # The last valid response, unchanged
    result: Mapping[str, object] | None
    # The same, typed
    response: AgentResponse | None
    # What is wrong with the last candidate, if there is no valid response
    result_error: str | None
    blockers: tuple[str, ...]
    # The next-steps or status block that ends the answer
    block: str | None
    truncated: bool
    warnings: tuple[str, ...]


def parse_answer(text: str, phase: str, *, truncated: bool = False) -> Answer:
    """Parse an agent's answer in a phase; never raises for any answer text.

    `truncated` says that the caller lost some of the output.
    """
    if phase not in ALLOWED_VERDICTS:
        raise ConfigError(f"unknown phase {phase!r}", f"use one of {', '.join(ALLOWED_VERDICTS)}")

    reading = scan_answer(text, truncated)
    judgement = decide_verdict(reading, phase)

    return Answer(
        verdict=judgement.verdict,
        error=judgement.error,
        reason=judgement.reason,
        task_statuses=_collect_task_statuses(reading.scan.tasks),
        text=_remove_thoughts(reading),
        result=reading.result.fields if reading.result else None,
        response=reading.result.response if reading.result else None,
        result_error=reading.result_error,
        blockers=tuple(_find_visible_blockers(reading)),
        block=reading.text[reading.block_start :].rstrip(" \t\n") or None,
        truncated=bool(reading.cut_off_reason),
        warnings=tuple(_collect_warnings(reading)),
    )


def find_blockers(text: str) -> tuple[str, ...]:
    """Return the `BLOCKER:` lines of output other than an answer: stderr has no quoted spans."""
    return tuple(
        _format_blocker(match)
        for match in islice(_match_blocker_lines(strip_escapes(text).text), _MAX_BLOCKERS)
    )


def _find_visible_blockers(reading: ScannedAnswer) -> Iterator[str]:
    visible = (
        match
        for match in _match_blocker_lines(reading.text)
        if reading.scan.is_visible(match.start(1))
    )
    return (_format_blocker(match) for match in islice(visible, _MAX_BLOCKERS))


def _format_blocker(match: re.Match[str]) -> str:
    """Return the text of a blocker, limited to a length that a user would read.

    The text is stored in the journal, and displayed wherever the package is.
    """
    blocker = match[2][: 2 * _MAX_BLOCKER_CHARACTERS].strip()
    if len(blocker) <= _MAX_BLOCKER_CHARACTERS:
        return blocker
    return f"{blocker[:_MAX_BLOCKER_CHARACTERS]} {_OMISSION_MARK}"


def _match_blocker_lines(text: str) -> Iterator[re.Match[str]]:
    # Most answers have none, and rfind is twice as fast as find.
    if text.rfind("BLOCKER:") >= 0:
        return _BLOCKER.finditer(text)
    return iter(())


def _collect_task_statuses(markers: list[Marker]) -> dict[str, TaskStatus]:
    statuses: dict[str, TaskStatus] = {}
    for marker in markers:
        if statuses.get(marker.task_id) is not TaskStatus.FAILED:
            statuses[marker.task_id] = TaskStatus(marker.value)
    return statuses


def _remove_thoughts(reading: ScannedAnswer) -> str:
    """Return the text without thoughts.

    A thought that shares its line leaves a mark there, so that the text around it is not joined.
    """
    thoughts = [quoted for quoted in reading.scan.quoted if quoted.kind is QuoteKind.THOUGHT]
    if not thoughts:
        return reading.text

    pieces = []
    position = 0

    for thought in thoughts:
        before = reading.text[position : thought.start]
        line_start = before.rstrip(" \t")
        starts_line = line_start.endswith("\n") or (position == 0 and not line_start)
        pieces.append(before)
        if not (starts_line and _BLANK_TO_LINE_END.match(reading.text, thought.end)):
            pieces.append(_OMISSION_MARK)

        position = thought.end

    return "".join([*pieces, reading.text[position:]])


def _collect_warnings(reading: ScannedAnswer) -> Iterator[str]:
    if reading.cut_off_reason:
        yield f"cut off: {reading.cut_off_reason}"

    for offset in reading.scan.stray_reviews[:_MAX_WARNINGS_PER_KIND]:
        yield f"line {reading.line_number_at(offset)}: this <review does not count"

    for offset in reading.scan.stray_tasks[:_MAX_WARNINGS_PER_KIND]:
        yield f"line {reading.line_number_at(offset)}: this <task_status does not count"

    yield from islice(_find_contradictions(reading.scan.tasks), _MAX_WARNINGS_PER_KIND)


def _find_contradictions(markers: list[Marker]) -> Iterator[str]:
    statuses_by_task: dict[str, set[str]] = {}
    for marker in markers:
        statuses_by_task.setdefault(marker.task_id, set()).add(marker.value)
    return (
        f"task {task_id} is COMPLETED and FAILED: FAILED counts"
        for task_id, statuses in statuses_by_task.items()
        if len(statuses) > 1
    )
