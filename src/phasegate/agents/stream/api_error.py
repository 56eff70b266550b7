"""Interpret an error of a model's service, independent of the program that reports it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from phasegate.agents.port import Ending
from phasegate.agents.stream.rate_limit_reset import MAX_RESET_DELAY_S, find_reset_time_s
from phasegate.core.machine.retry import Fault, classify_failure

MAX_MESSAGE_CHARS = 4_000
MAX_DISPLAY_CHARS = 300


class ReportedError(NamedTuple):
    """An error as an agent reports it: message, HTTP status and end of a limit, if known."""

    message: str
    status: int | None = None
    retry_at_s: float | None = None


class ErrorMeaning(NamedTuple):
    """The meaning of an error: the ending of the run, when to retry, what the user can do."""

    ending: Ending
    retry_at_s: float | None = None
    remedy: str = ""


_STATUS = re.compile(
    r"\b(?:status|code|error|http)\W{1,8}([45][0-9]{2})\b|\(([45][0-9]{2})\)", re.I
)
_UNPAID = re.compile(r"\bcredit balance|\bpayment required|\binsufficient_quota|\bbilling", re.I)
_SIGNED_OUT = re.compile(
    r"\bnot (?:logged|signed) in\b|/login\b"
    r"|\b(?:invalid|incorrect|missing|no) (?:x-)?api[ -]key|\bapi key not valid"
    r"|\bunauthori[sz]ed\b|\bauthenticat\w* (?:failed|error|required)"
    r"|\bauthentication_(?:failed|error)|\bno auth type"
    r"|\bfailed to authenticate|\bset an auth method"
    r"|\btoken (?:has )?expired|\bmissing environment variable",
    re.I,
)
_LIMITED = re.compile(
    r"\b(?:usage|rate|session|weekly|hourly|daily)[ _-]?limit|\bhit your limit|\blimit reached"
    r"|\bquota\b|\bresource_exhausted|\btoo many requests",
    re.I,
)
# The messages of each program when the stream of its model was cut or garbled, taken from the runs
# `err_cut`, `err_cut_short` and `err_garbled` in tests/fixtures/agent_streams.
BROKEN_STREAM_MESSAGES: Mapping[str, tuple[str, ...]] = {
    "claude_code": ("Connection to the API was lost", "empty or malformed response"),
    "codex": ("stream disconnected before completion", "stream closed before response.completed"),
    "copilot": ("Failed to get response from the AI model",),
    "gemini": (
        "API Error: terminated",
        "stream ended without a finish reason",
        "in JSON at position",
    ),
    "opencode": ("socket connection was closed", "JSONParseError", "stream ended before its end"),
    "qwen": ("UND_ERR_SOCKET", "stream ended without a finish reason", "in JSON at position"),
}
_BROKEN_STREAM = re.compile(
    "|".join(
        re.escape(message) for messages in BROKEN_STREAM_MESSAGES.values() for message in messages
    ),
    re.I,
)
_TRANSIENT = re.compile(
    r"\bstream (?:was )?(?:ended|closed|cut)|\bis not valid JSON|\bend of JSON input"
    r"|\bhigh demand|\boverloaded|\btemporar|\bfetch failed"
    r"|\bconnection (?:error|failed|closed|lost|reset)|\binternal (?:server )?error"
    r"|\bpremature close|\bwaiting for network|\brequest timed out|\bservice unavailable",
    re.I,
)
_AUTH_STATUSES = (401, 403)
_LIMIT_STATUSES = (429, 529)
_TRANSIENT_STATUSES = (408, 409, 425)


def interpret_error(error: ReportedError, sign_in_hint: str, now_s: float) -> ErrorMeaning:
    """Interpret an error.

    401 needs the user, 429 a wait, 5xx and a cut stream a retry; every other error is a failure.
    """
    text = error.message[:MAX_MESSAGE_CHARS]
    status = error.status or _find_status(text)

    if status == 402 or _UNPAID.search(text):
        return ErrorMeaning(
            Ending.NOT_RUNNABLE,
            remedy="its account has no credit left: top it up, or use another agent",
        )

    if status in _AUTH_STATUSES or (status is None and _SIGNED_OUT.search(text)):
        return ErrorMeaning(Ending.NOT_RUNNABLE, remedy=sign_in_hint)

    if status in _LIMIT_STATUSES or (status is None and _is_limit(text)):
        retry_at_s = error.retry_at_s
        if retry_at_s is None or not now_s <= retry_at_s <= now_s + MAX_RESET_DELAY_S:
            retry_at_s = find_reset_time_s(text, now_s)
        return ErrorMeaning(Ending.RATE_LIMITED, retry_at_s)

    if (
        status in _TRANSIENT_STATUSES
        or (status or 0) >= 500
        or (status is None and _is_transient(text))
    ):
        return ErrorMeaning(Ending.TRANSIENT)

    return ErrorMeaning(Ending.FAILED)


def format_error(error: ReportedError) -> str:
    """Format the error as one line."""
    line = " ".join(error.message.split())[:MAX_DISPLAY_CHARS]
    if not line:
        line = "the model's service reported an error"
    if error.status is None or str(error.status) in line:
        return line
    return f"HTTP {error.status}: {line}"


def _find_status(text: str) -> int | None:
    match = _STATUS.search(text)
    if match:
        return int(match[1] or match[2])
    return None


def _is_limit(text: str) -> bool:
    return _LIMITED.search(text) is not None or classify_failure(1, text) is Fault.RATE_LIMIT


def _is_transient(text: str) -> bool:
    return (
        bool(_BROKEN_STREAM.search(text) or _TRANSIENT.search(text))
        or classify_failure(1, text) is Fault.NETWORK
    )
