"""Interpret the output and the end of a program without a protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from phasegate.agents.port import AgentEvent, AgentReport, Ending, EventKind, FinishedRun
from phasegate.agents.stream.rate_limit_reset import find_reset_time_s
from phasegate.core.machine.retry import Fault, classify_failure
from phasegate.core.text.escapes import strip_escapes
from phasegate.core.text.visible import escape_unprintable

# Exit statuses of a shell.
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_MAX_QUOTE_CHARS = 300
MAX_STDERR_CHARS = 4_000
MAX_OPTION_CHARS = 60
# The messages of commander, clap and yargs; the last one prints options without hyphens.
# Python prints the error below the code that raised it
_TRACEBACK = "Traceback (most recent call last):"
_UNKNOWN_OPTION = re.compile(
    r"^error: (?:unknown option|unexpected argument) '(-[^'\n]{1,100})'"
    r"|^Unknown arguments?: ([\w-]{1,100})"
    # opencode prints its help and does not name the option.
    r"|^ *(opencode run) \[message",
    re.M,
)


class PlainOutputParser:
    """The parser of a program without a protocol: all its output is the answer."""

    def __init__(self, build_report: Callable[[FinishedRun], AgentReport] | None = None) -> None:
        self._build_report = build_report or build_plain_report

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        return (AgentEvent(EventKind.TEXT, text),)

    def build_report(self, finished: FinishedRun) -> AgentReport:
        return self._build_report(finished)


def build_plain_report(finished: FinishedRun) -> AgentReport:
    """Build a report with stdout as the answer, and the ending from exit status and stderr.

    Stdout is not searched for errors: an agent that writes about time-outs did not have one.
    """
    ending, reason = classify_exit(finished)
    return AgentReport(
        answer=finished.stdout,
        ending=ending,
        reason=reason,
        retry_at_s=find_retry_time_s(finished) if ending is Ending.RATE_LIMITED else None,
        truncated=finished.truncated,
    )


def classify_exit(finished: FinishedRun) -> tuple[Ending, str]:
    """Return the ending and its reason, from exit status and stderr."""
    if finished.exceeded_limit:
        return Ending.FAILED, describe_exceeded_limit(finished)
    if finished.timed_out or (finished.sigterm_sent and finished.exit_status != 0):
        return Ending.FAILED, describe_early_stop(finished)
    if finished.signal is not None:
        return Ending.FAILED, f"it was killed by signal {finished.signal}"
    if finished.exit_status is None:
        return Ending.FAILED, "its exit status is unknown"
    if finished.exit_status == 0:
        return Ending.COMPLETED, ""

    if finished.exit_status in (_NOT_EXECUTABLE, _NOT_FOUND):
        return (
            Ending.NOT_RUNNABLE,
            f"exit status {finished.exit_status}: a program was not found or is not executable",
        )

    return _classify_failure(finished.exit_status, finished.stderr)


def _classify_failure(exit_status: int, stderr: str) -> tuple[Ending, str]:
    """Classify a failed exit by its stderr, and return the ending with a reason."""
    fault = classify_failure(exit_status, stderr)
    reason = f"exit status {exit_status}"
    if fault is not Fault.PERMANENT:
        reason += f" ({fault})"

    reason += _quote_error_line(stderr)
    if fault is Fault.PERMANENT:
        return Ending.FAILED, reason
    if fault is Fault.RATE_LIMIT:
        return Ending.RATE_LIMITED, reason
    return Ending.TRANSIENT, reason


def find_unknown_option(stderr: str) -> str:
    """Return the option that a program reports as unknown; empty if it reports none."""
    match = _UNKNOWN_OPTION.search(strip_escapes(stderr[:MAX_STDERR_CHARS]).text)
    if match is None:
        return ""

    option = match[1] or match[2] or f"that `{match[3]}` was given"
    return escape_unprintable(option[:MAX_OPTION_CHARS])


def _quote_error_line(stderr: str) -> str:
    """Return the line of stderr that most likely explains the failure."""
    text = strip_escapes(stderr[-4_000:]).text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""

    line = next((line for line in lines if "error" in line.lower()), lines[-1])
    if _TRACEBACK in lines:
        line = lines[-1]

    return f": {escape_unprintable(line[:_MAX_QUOTE_CHARS])}"


def describe_early_stop(finished: FinishedRun) -> str:
    """Describe why the program did not finish."""
    if finished.stop_requested and not finished.timed_out:
        return f"it was stopped after {finished.duration_s:.0f} s"
    return f"it timed out after {finished.duration_s:.0f} s"


def describe_exceeded_limit(finished: FinishedRun) -> str:
    return f"it was ended at {finished.exceeded_limit}, after {finished.duration_s:.0f} s"


def find_retry_time_s(finished: FinishedRun) -> float | None:
    """Return the reset time of a rate limit, if stderr states one."""
    return find_reset_time_s(finished.stderr, finished.ended_at_s)
