"""Find the JSON result of an answer in untrusted text, decode it strictly and check it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import msgspec

from phasegate.typed import read_value

MAX_RESULT_CHARACTERS = 1 << 20
MAX_DEPTH = 32
_MAX_DIGITS = 40
# An object counts as a result if it has one of these keys, written without escapes.
RESULT_KEYS = ('"success"', '"job_id"')
_REQUIRED_KEYS = ('"success"', '"status"')
BLOCKED = "blocked"


class ReportedCommit(msgspec.Struct, frozen=True):
    """A commit as the agent reports it; git has the facts."""

    sha: str
    message: str = ""


class ReportedArtifacts(msgspec.Struct, frozen=True):
    """Artifacts as the agent reports them; the file system and the checks have the facts."""

    files_created: tuple[str, ...] | None = None
    test_coverage: str | int | float | None = None
    lint_status: str | None = None


class AgentResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a response.

    An optional field may be null, which means absent. Unknown fields are ignored.

    The ids may be missing only from an escalation: `"success": false` with status "blocked".
    """

    job_id: str | msgspec.UnsetType = msgspec.UNSET
    wp_id: str | msgspec.UnsetType | None = msgspec.UNSET
    success: bool
    status: str
    summary: str | None = None
    commits: tuple[ReportedCommit, ...] | None = None
    artifacts: ReportedArtifacts | None = None
    pr_url: str | None = None
    duration_seconds: int | float | None = None
    next_steps: tuple[str, ...] | None = None
    error: str | None = None
    blocked_reason: str | None = None
    remediation: str | None = None
    cleanup_required: bool | None = None


class ResultRefusal(StrEnum):
    """The reason why a valid response does not count as this job's success or failure."""

    ANOTHER_JOB = "AnotherJob"
    ANOTHER_PACKAGE = "AnotherPackage"
    CONTRADICTORY = "StatusContradictsSuccess"


class FoundResult(NamedTuple):
    """A JSON object in a text, or the reason why a candidate is not a valid result."""

    start: int
    end: int
    fields: dict[str, object]
    response: AgentResponse | None
    problem: str


class _MalformedResult(ValueError):
    """JSON outside of the accepted subset; the message gives the reason."""


def check_result(response: AgentResponse, job_id: str, wp_id: str | None) -> list[ResultRefusal]:
    """Return every reason to refuse this response as the answer of this job.

    An escalation without ids is accepted, because it came from this job's process. A wrong id is
    refused even there.
    """
    reasons = {
        ResultRefusal.ANOTHER_JOB: response.job_id not in (job_id, msgspec.UNSET),
        ResultRefusal.ANOTHER_PACKAGE: response.wp_id not in (wp_id, msgspec.UNSET),
        ResultRefusal.CONTRADICTORY: response.success != (response.status == "completed"),
    }
    return [refusal for refusal, applies in reasons.items() if applies]


def find_last_result(text: str, start: int, end: int) -> FoundResult | None:
    """Find the last valid result in this range, else the last object that resembles one.

    An object nested in another one does not count.
    """
    malformed = None

    for object_start, object_end, problem in reversed(list(_find_objects(text, start, end))):
        # Once there is a problem to report, only objects that can be valid are worth decoding.
        if malformed is None or _count_keys(_REQUIRED_KEYS, text, object_start, object_end) == len(
            _REQUIRED_KEYS
        ):
            result = _decode_object(text, object_start, object_end, problem)
            if result is not None and result.response is not None:
                return result

            malformed = malformed or result

    return malformed


def _count_keys(keys: tuple[str, ...], text: str, start: int, end: int) -> int:
    """Count how many of these keys occur in the range."""
    return sum(text.find(key, start, end) >= 0 for key in keys)


# A step skips everything that JSON allows up to the next bracket, and never goes back. The search
# continues where an invalid object stopped being JSON: nothing is read twice, so the search is
# linear, and objects nested in an invalid one do not count.
_STRING = r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_SCALAR = r"-?[0-9][0-9.eE+-]*+|true|false|null|NaN|-?Infinity"
_UP_TO_BRACKET = re.compile(rf"(?:[ \t\n\r]++|{_STRING}|{_SCALAR}|[,:])*+([{{}}\[\]])?")
_OBJECT_START = re.compile(r'\{[ \t\n\r]*+"')
_OPENING_BRACKET_OF = {"}": "{", "]": "["}
_NOT_JSON = "is not valid JSON"


def _find_objects(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    while opening := _OBJECT_START.search(text, start, end):
        start, problem = _find_object_end(text, opening.start(), end)
        yield opening.start(), start, problem


def _find_object_end(text: str, start: int, end: int) -> tuple[int, str]:
    """Return where the object ends, or where it stops being JSON and why."""
    open_brackets: list[str] = []
    deepest = 0
    position = start

    while step := _UP_TO_BRACKET.match(text, position, end):
        bracket = step[1]
        position = step.end()
        if bracket is None:
            if position == end:
                return position, "is cut off"
            return position, _NOT_JSON

        if bracket in _OPENING_BRACKET_OF:
            if open_brackets.pop() != _OPENING_BRACKET_OF[bracket]:
                return position, _NOT_JSON
            if not open_brackets:
                break
        elif open_brackets[-1:] == ["{"] and not _is_preceded_by_key(text, step):
            # The next object may start here
            return position - 1, _NOT_JSON
        else:
            open_brackets.append(bracket)
            deepest = max(deepest, len(open_brackets))

    if deepest > MAX_DEPTH:
        return position, f"is nested deeper than {MAX_DEPTH} levels"
    return position, ""


def _is_preceded_by_key(text: str, step: re.Match[str]) -> bool:
    """Return True if the bracket follows a key: inside an object, nothing else may open one."""
    return text[step.start() : step.start(1)].rstrip(" \t\n\r").endswith(":")


def _decode_object(text: str, start: int, end: int, problem: str) -> FoundResult | None:
    """Decode the object as a result, or return None if it does not resemble one."""
    if not _count_keys(RESULT_KEYS, text, start, end):
        return None
    if not problem and end - start > MAX_RESULT_CHARACTERS:
        problem = f"is longer than {MAX_RESULT_CHARACTERS} characters"

    if problem:
        return FoundResult(
            start=start, end=end, fields={}, response=None, problem=f"the JSON object {problem}"
        )

    return _validate_object(text[start:end], start, end)


def _validate_object(source: str, start: int, end: int) -> FoundResult | None:
    """Decode an object as a result, or return None if it has no field of a result."""
    try:
        fields = _load_strict_json(source)
        if not {"success", "job_id"} & fields.keys():
            return None

        response = read_value(fields, AgentResponse)
        _require_ids(response)
        return FoundResult(start=start, end=end, fields=fields, response=response, problem="")
    except (ValueError, RecursionError) as error:
        # msgspec.ValidationError is a ValueError
        return FoundResult(
            start=start,
            end=end,
            fields={},
            response=None,
            problem=f"the JSON object is malformed: {error}",
        )


def _require_ids(response: AgentResponse) -> None:
    """Require job and package id, so that another job's result is not mistaken for this one.

    A plain failure needs them too; only an escalation does not.
    """
    if not response.success and response.status == BLOCKED:
        return

    for name in ("job_id", "wp_id"):
        if getattr(response, name) is msgspec.UNSET:
            raise _MalformedResult(f"required field `{name}` is missing")


def _load_strict_json(source: str) -> dict[str, object]:
    """Parse JSON without duplicate keys, special numbers and half surrogate pairs."""
    fields: dict[str, object] = json.loads(
        source,
        object_pairs_hook=_reject_duplicate_keys,
        parse_constant=_reject_constant,
        parse_int=_parse_integer,
        parse_float=_parse_finite_float,
    )

    # `"\ud800"` is half a surrogate pair, which cannot be stored.
    json.dumps(fields, ensure_ascii=False).encode()
    return fields


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise _MalformedResult(f"duplicate key {name[:40]!r}")
        fields[name] = value
    return fields


def _reject_constant(name: str) -> object:
    raise _MalformedResult(f"{name} is not a JSON number")


def _parse_integer(digits: str) -> int:
    return int(_limit_digits(digits))


def _parse_finite_float(digits: str) -> float:
    number = float(_limit_digits(digits))
    if not math.isfinite(number):
        raise _MalformedResult("a number that is too large")
    return number


def _limit_digits(digits: str) -> str:
    # Converting many digits takes quadratic time.
    if len(digits) > _MAX_DIGITS:
        raise _MalformedResult(f"a number of {len(digits)} digits")
    return digits
