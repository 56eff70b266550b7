"""What the end of a plain program means, where it speaks no protocol of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from phasegate.agents.port import AgentEvent, AgentReport, Ending, EventKind, FinishedRun
from phasegate.agents.stream.reset_time import reset_time_s
from phasegate.core.machine.retry import Fault, classify
from phasegate.core.text.escapes import strip_escapes
from phasegate.core.text.visible import visible

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # what a shell says
_LONGEST_QUOTE = 300
READ_OF_COMPLAINT, LONGEST_OPTION = 4_000, 60
# In the words of commander, clap and yargs; the last one names its options without hyphens.
_UNKNOWN_OPTION = re.compile(
    r"^error: (?:unknown option|unexpected argument) '(-[^'\n]{1,100})'|^Unknown arguments?: ([\w-]{1,100})"
    r"|^ *(opencode run) \[message",  # it prints its help, and does not say which
    re.M,
)


class PlainReading:
    """Of a program without a protocol: what it prints is shown as it comes, and all of it is the answer."""

    def __init__(self, report: Callable[[FinishedRun], AgentReport] | None = None) -> None:
        self._report = report or report_of_plain_program

    def line(self, text: str) -> Iterable[AgentEvent]:
        return (AgentEvent(EventKind.TEXT, text),)

    def report(self, finished: FinishedRun) -> AgentReport:
        return self._report(finished)


def report_of_plain_program(finished: FinishedRun) -> AgentReport:
    """Stdout is the answer. The exit status says how it ended, and stderr whether another try may help.

    Stdout is not asked: an agent that writes about timeouts has not had one.
    """
    ending, reason = ending_of_plain_program(finished)
    again_s = retry_at_s(finished) if ending is Ending.RATE_LIMITED else None
    return AgentReport(finished.stdout, ending, reason, again_s, cut=finished.cut)


def ending_of_plain_program(finished: FinishedRun) -> tuple[Ending, str]:
    """What exit status and stderr say."""
    if finished.over:
        return Ending.FAILED, ended_at_a_limit(finished)
    if finished.timed_out or (finished.told_to_stop and finished.exit_status != 0):
        return Ending.FAILED, cut_short(finished)
    if finished.signal is not None:
        return Ending.FAILED, f"signal {finished.signal} ended it"
    if finished.exit_status is None:
        return Ending.FAILED, "how it ended is unknown"
    if finished.exit_status == 0:
        return Ending.COMPLETED, ""
    if finished.exit_status in (_NOT_EXECUTABLE, _NOT_FOUND):
        return Ending.NOT_RUNNABLE, f"exit status {finished.exit_status}: a program was not found or may not be run"
    return _failure(finished.exit_status, finished.stderr)


def _failure(exit_status: int, stderr: str) -> tuple[Ending, str]:
    fault = classify(exit_status, stderr)
    endings = {Fault.PERMANENT: Ending.FAILED, Fault.RATE_LIMIT: Ending.RATE_LIMITED}
    kind = "" if fault is Fault.PERMANENT else f" ({fault})"
    return endings.get(fault, Ending.TRANSIENT), f"exit status {exit_status}{kind}{_complaint(stderr)}"


def unknown_option(stderr: str) -> str:
    """The option that a program says it does not know; empty: it says no such thing."""
    found = _UNKNOWN_OPTION.search(strip_escapes(stderr[:READ_OF_COMPLAINT]).text)
    return visible((found[1] or found[2] or f"that `{found[3]}` was given")[:LONGEST_OPTION]) if found else ""


def _complaint(stderr: str) -> str:
    """The line of stderr that most likely says what is wrong."""
    lines = [line.strip() for line in strip_escapes(stderr[-4_000:]).text.splitlines() if line.strip()]
    line = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    return f": {visible(line[:_LONGEST_QUOTE])}" if line else ""


def cut_short(finished: FinishedRun) -> str:
    """Why it did not come to its own end."""
    how = "was stopped" if finished.stopped and not finished.timed_out else "ran out of time"
    return f"it {how} after {finished.duration_s:.0f} s"


def ended_at_a_limit(finished: FinishedRun) -> str:
    return f"it was ended at {finished.over}, after {finished.duration_s:.0f} s"


def retry_at_s(finished: FinishedRun) -> float | None:
    """When the limit ends that stderr speaks of."""
    return reset_time_s(finished.stderr, finished.ended_at_s)
