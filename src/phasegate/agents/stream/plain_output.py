"""What the end of a plain program means, where it speaks no protocol of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from phasegate.agents.port import AgentEvent, AgentReport, Ending, EventKind, FinishedRun
from phasegate.agents.stream.reset_time import find_reset_time_s
from phasegate.core.machine.retry import Fault, classify_failure
from phasegate.core.text.escapes import strip_escapes
from phasegate.core.text.visible import escape_unprintable

# What a shell says
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_MAX_QUOTE_CHARS = 300
MAX_STDERR_CHARS = 4_000
MAX_OPTION_CHARS = 60
# In the words of commander, clap and yargs; the last one names its options without hyphens.
_UNKNOWN_OPTION = re.compile(
    r"^error: (?:unknown option|unexpected argument) '(-[^'\n]{1,100})'|^Unknown arguments?: ([\w-]{1,100})"
    # It prints its help, and does not say which
    r"|^ *(opencode run) \[message",
    re.M,
)


class PlainOutputParser:
    """Of a program without a protocol.

    What it prints is shown as it comes, and all of it is the answer.
    """

    def __init__(self, build_report: Callable[[FinishedRun], AgentReport] | None = None) -> None:
        self._build_report = build_report or build_plain_report

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        return (AgentEvent(EventKind.TEXT, text),)

    def build_report(self, finished: FinishedRun) -> AgentReport:
        return self._build_report(finished)


def build_plain_report(finished: FinishedRun) -> AgentReport:
    """Stdout is the answer.

    The exit status says how it ended, and stderr whether another try may help.

    Stdout is not asked: an agent that writes about timeouts has not had one.
    """
    ending, reason = classify_exit(finished)
    if ending is Ending.RATE_LIMITED:
        again_s = find_retry_time_s(finished)
    else:
        again_s = None

    return AgentReport(
        answer=finished.stdout,
        ending=ending,
        reason=reason,
        retry_at_s=again_s,
        truncated=finished.truncated,
    )


def classify_exit(finished: FinishedRun) -> tuple[Ending, str]:
    """What exit status and stderr say."""
    if finished.exceeded_limit:
        return Ending.FAILED, describe_exceeded_limit(finished)
    if finished.timed_out or (finished.sigterm_sent and finished.exit_status != 0):
        return Ending.FAILED, describe_early_stop(finished)
    if finished.signal is not None:
        return Ending.FAILED, f"signal {finished.signal} ended it"
    if finished.exit_status is None:
        return Ending.FAILED, "how it ended is unknown"
    if finished.exit_status == 0:
        return Ending.COMPLETED, ""

    if finished.exit_status in (_NOT_EXECUTABLE, _NOT_FOUND):
        return (
            Ending.NOT_RUNNABLE,
            f"exit status {finished.exit_status}: a program was not found or may not be run",
        )

    return _classify_failure(finished.exit_status, finished.stderr)


def _classify_failure(exit_status: int, stderr: str) -> tuple[Ending, str]:
    fault = classify_failure(exit_status, stderr)
    endings = {Fault.PERMANENT: Ending.FAILED, Fault.RATE_LIMIT: Ending.RATE_LIMITED}
    if fault is Fault.PERMANENT:
        kind = ""
    else:
        kind = f" ({fault})"

    return endings.get(
        fault, Ending.TRANSIENT
    ), f"exit status {exit_status}{kind}{_quote_error_line(stderr)}"


def find_unknown_option(stderr: str) -> str:
    """The option that a program says it does not know; empty: it says no such thing."""
    found = _UNKNOWN_OPTION.search(strip_escapes(stderr[:MAX_STDERR_CHARS]).text)
    if found:
        return escape_unprintable(
            (found[1] or found[2] or f"that `{found[3]}` was given")[:MAX_OPTION_CHARS]
        )

    return ""


def _quote_error_line(stderr: str) -> str:
    """The line of stderr that most likely says what is wrong."""
    lines = [
        line.strip() for line in strip_escapes(stderr[-4_000:]).text.splitlines() if line.strip()
    ]
    line = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    if line:
        return f": {escape_unprintable(line[:_MAX_QUOTE_CHARS])}"

    return ""


def describe_early_stop(finished: FinishedRun) -> str:
    """Why it did not come to its own end."""
    if finished.stop_requested and not finished.timed_out:
        how = "was stopped"
    else:
        how = "ran out of time"
    return f"it {how} after {finished.duration_s:.0f} s"


def describe_exceeded_limit(finished: FinishedRun) -> str:
    return f"it was ended at {finished.exceeded_limit}, after {finished.duration_s:.0f} s"


def find_retry_time_s(finished: FinishedRun) -> float | None:
    """When the limit ends that stderr speaks of."""
    return find_reset_time_s(finished.stderr, finished.ended_at_s)
