"""An agent's answer: from untrusted text to a typed verdict, task statuses and result.

The grammar is docs/reference/answers.md. Whatever is unclear is a no.
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
    """What an answer says. A verdict and an error are never there together."""

    verdict: Verdict | None
    error: AnswerError | None
    # The error in words that the agent can act on
    reason: str
    task_statuses: dict[str, TaskStatus]
    # For people and later prompts: no thoughts, no escape sequences, LF line ends
    text: str
    # The last valid response, as it was given
    result: Mapping[str, object] | None
    # The same, typed
    response: AgentResponse | None
    # Why what looks like a response is none, when there is no valid one
    result_error: str | None
    blockers: tuple[str, ...]
    # The agent's own next-steps or status block: the last thing in its answer
    block: str | None
    truncated: bool
    warnings: tuple[str, ...]


def parse_answer(text: str, phase: str, *, truncated: bool = False) -> Answer:
    """Read an agent's answer in a phase; never raises for an answer.

    `truncated`: the caller lost some of it.
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
    """The `BLOCKER:` lines of other output than an answer: stderr has no quoted stretches."""
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
    """What a line says, as long as a person would read it.

    It is recorded, and shown wherever the package is.
    """
    said = match[2][: 2 * _MAX_BLOCKER_CHARACTERS].strip()
    if len(said) <= _MAX_BLOCKER_CHARACTERS:
        return said
    return f"{said[:_MAX_BLOCKER_CHARACTERS]} {_OMISSION_MARK}"


def _match_blocker_lines(text: str) -> Iterator[re.Match[str]]:
    # From the right is twice as fast as from the left, and most answers have none.
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
    """The text for people.

    A thought that shares its line leaves a mark there, so that what it parted stays parted.
    """
    thoughts = [quoted for quoted in reading.scan.quoted if quoted.kind is QuoteKind.THOUGHT]
    if not thoughts:
        return reading.text

    pieces = []
    position = 0

    for thought in thoughts:
        before = reading.text[position : thought.start]
        own_line = (before.rstrip(" \t") or "\n" * (position == 0)).endswith("\n")
        alone = own_line and _BLANK_TO_LINE_END.match(reading.text, thought.end)
        pieces += [before, "" if alone else _OMISSION_MARK]
        position = thought.end

    return "".join([*pieces, reading.text[position:]])


def _collect_warnings(reading: ScannedAnswer) -> Iterator[str]:
    if reading.cut_off_reason:
        yield f"cut off: {reading.cut_off_reason}"

    for place in reading.scan.stray_reviews[:_MAX_WARNINGS_PER_KIND]:
        yield f"line {reading.line_number_at(place)}: this <review does not count"

    for place in reading.scan.stray_tasks[:_MAX_WARNINGS_PER_KIND]:
        yield f"line {reading.line_number_at(place)}: this <task_status does not count"

    yield from islice(_find_contradictions(reading.scan.tasks), _MAX_WARNINGS_PER_KIND)


def _find_contradictions(markers: list[Marker]) -> Iterator[str]:
    words: dict[str, set[str]] = {}
    for marker in markers:
        words.setdefault(marker.task_id, set()).add(marker.value)
    return (
        f"task {task_id} is COMPLETED and FAILED: FAILED counts"
        for task_id, said in words.items()
        if len(said) > 1
    )
