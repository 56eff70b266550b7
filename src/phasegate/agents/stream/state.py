"""What a reading keeps of a stream, little whatever its length, and the report that follows from
it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from io import StringIO
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentReport, AgentTask, Ending, FinishedRun, JobHandle, Usage
from phasegate.agents.stream.api_error import ReportedError, format_error, interpret_error
from phasegate.agents.stream.line import Line, LineReader
from phasegate.agents.stream.plain_output import (
    classify_exit,
    describe_early_stop,
    describe_exceeded_limit,
    find_retry_time_s,
    find_unknown_option,
)
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.core.answer.parse import parse_answer


class FirstOutputTimer:
    """Stops a job whose model gives no sign in time. Nothing is watched before `begin`."""

    def __init__(self, job: JobHandle, timeout_s: float) -> None:
        self.expired = False
        self._timeout_s = timeout_s
        self._job = job
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """The job starts now."""
        self._timer = threading.Timer(self._timeout_s, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """The model gave a sign, or nobody waits for one any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.expired = True
        self._job.stop()

    def build_report(self) -> AgentReport:
        """What a run brought that was stopped for its silence."""
        reason = f"no sign of its model within {self._timeout_s:.0f} s; it may be waiting at a limit of its provider"
        remedy = "if its model is slow to begin, raise `first_output_timeout_s` of the agent"
        return AgentReport(answer="", ending=Ending.SILENT, reason=reason, remedy=remedy)


MAX_MESSAGE_CHARS = 4_000_000
MAX_BLOCKERS = 20


class StreamState:
    """One run so far.

    Its last message is the answer; blockers in earlier ones are kept, the rest is gone.

    `completed` is set by the agent's own mark of a good end alone, and taken back by whatever it
    does after it.
    """

    def __init__(self, row: HarnessRow, task: AgentTask, job: JobHandle) -> None:
        self.row = row
        self.first_output_timer = FirstOutputTimer(job, task.agent.first_output_timeout_s)
        self.usage: Usage | None = None
        self.completed = False
        # Its own report of a bad end
        self.error: ReportedError | None = None
        # What it is waiting for, unless it got on
        self.retry_error: ReportedError | None = None
        self.stopped_by_us = False
        self.truncated = False
        # The answer was given whole, whatever was missed before
        self.has_full_answer = False
        # Lines of its protocol of which something could not be read
        self.unreadable_lines = 0
        # Of the program, where it says so in its stream
        self.version = ""
        self._phase = task.phase
        self._job = job
        self._message = StringIO()
        self._message_ended = False
        self._blockers: list[str] = []
        self._progress_timer: threading.Timer | None = None

    def parse_line(self, reader: LineReader[Line], text: str) -> Line | None:
        """A line of its protocol, or None.

        What cannot be read is counted, and the answer is cut if it may miss it.
        """
        found = reader.parse_line(text)
        self.unreadable_lines += found.has_invalid_fields
        if found.loses_text:
            self.mark_text_lost()

        return found.line

    def mark_text_lost(self) -> None:
        """A piece of the message in hand, or of the next one, cannot be read."""
        self.add_text("")
        self.truncated = True

    def add_text(self, text: str) -> None:
        """Add to the message in hand, or begin the next one."""
        self.mark_progress()
        if self._message_ended:
            self._start_message()

        piece = text[: MAX_MESSAGE_CHARS - self._message.tell()]
        self.truncated = self.truncated or len(text) > len(piece)
        self._message.write(piece)

    def end_message(self) -> None:
        self._message_ended = True

    def replace_message(self, text: str) -> None:
        """The message in hand, as the agent gives it once more and whole."""
        if self.answer != text:
            self._start_message()
            self.add_text(text)
        self.truncated = len(text) > MAX_MESSAGE_CHARS
        self.has_full_answer = True

    def mark_progress(self) -> None:
        """Its model works: it has not ended, and it waits for nothing."""
        self.first_output_timer.cancel()
        self.completed = False
        self.error = None
        self.retry_error = None
        self.cancel_progress_timer()

    def stop(self) -> None:
        """End a program that will not end, or not in time, by itself."""
        if not self.stopped_by_us:
            self.stopped_by_us = True
            self._job.stop()

    def stop_if_no_progress(self, timeout_s: float) -> None:
        """Be patient with a program that waits, and does not say for how long."""
        if self._progress_timer is None:
            self._progress_timer = threading.Timer(timeout_s, self.stop)
            self._progress_timer.daemon = True
            self._progress_timer.start()

    def cancel_progress_timer(self) -> None:
        if self._progress_timer is not None:
            self._progress_timer.cancel()
            self._progress_timer = None

    @property
    def answer(self) -> str:
        return self._message.getvalue()

    @property
    def blockers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._blockers))

    def _start_message(self) -> None:
        text = self.answer
        self._message = StringIO()
        self._message_ended = False
        self.truncated = False
        self.has_full_answer = False
        if "BLOCKER:" in text:
            found = parse_answer(text, self._phase, truncated=False).blockers
            self._blockers = [*self._blockers, *found][:MAX_BLOCKERS]


class StreamParser:
    """The reading of a program that speaks of its own end.

    How it takes in a line is each program's own.
    """

    # Exit statuses that mean: wrongly set up
    config_error_statuses: tuple[int, ...] = ()

    def __init__(self, state: StreamState, checkout: Path) -> None:
        self._state = state
        self._checkout = checkout

    def on_job_start(self) -> None:
        self._state.first_output_timer.start()

    def build_report(self, finished: FinishedRun) -> AgentReport:
        return build_stream_report(self._state, finished, self.config_error_statuses)


def build_stream_report(
    state: StreamState, finished: FinishedRun, config_error_statuses: Collection[int]
) -> AgentReport:
    """What a run brought whose program speaks of its own end.

    Exit statuses in `unusable` mean: wrongly set up.
    """
    state.cancel_progress_timer()
    state.first_output_timer.cancel()
    # What was too long may have been text
    cut = state.truncated or (finished.skipped_lines > 0 and not state.has_full_answer)
    report = AgentReport(
        answer=state.answer,
        ending=Ending.COMPLETED,
        truncated=cut,
        usage=state.usage,
        blockers=state.blockers,
        remark=_describe_unreadable_lines(state),
    )

    if finished.exceeded_limit:
        return msgspec.structs.replace(
            report, ending=Ending.FAILED, reason=describe_exceeded_limit(finished)
        )

    trouble = state.error or (None if state.completed else state.retry_error)
    # One that we stopped may have had to be killed: what it waited for is the reason, not the time
    # that it had.
    if trouble is not None and (
        state.stopped_by_us or state.first_output_timer.expired or not finished.timed_out
    ):
        meaning = interpret_error(trouble, state.row.sign_in_hint, finished.ended_at_s)
        return msgspec.structs.replace(
            report,
            ending=meaning.ending,
            reason=format_error(trouble),
            retry_at_s=meaning.retry_at_s,
            remedy=meaning.remedy,
        )

    if not state.completed and (option := find_unknown_option(finished.stderr)):
        return msgspec.structs.replace(report, **_describe_unknown_option(state.row, option))

    if state.first_output_timer.expired and not state.completed:
        return msgspec.structs.replace(
            state.first_output_timer.build_report(), remark=report.remark
        )

    ending, reason = _classify_end(state, finished, config_error_statuses)
    if ending is Ending.RATE_LIMITED:
        again_s = find_retry_time_s(finished)
    else:
        again_s = None

    if ending is Ending.NOT_RUNNABLE and finished.exit_status in config_error_statuses:
        remedy = state.row.sign_in_hint
    else:
        remedy = ""

    return msgspec.structs.replace(
        report, ending=ending, reason=reason, retry_at_s=again_s, remedy=remedy
    )


def _describe_unknown_option(row: HarnessRow, option: str) -> dict[str, object]:
    """It was started with an option that its version does not have.

    Ours, or one of the configured command.
    """
    if row.tested_version:
        versions = f"it was tested with {row.tested_version}; update it: {row.install_instruction}"
    else:
        versions = "see its documentation"

    remedy = f"{versions}; or fix `command` in phasegate.toml, if the option is yours"
    return {
        "ending": Ending.NOT_RUNNABLE,
        "reason": f"it does not know the option {option}",
        "remedy": remedy,
    }


def _describe_unreadable_lines(state: StreamState) -> str:
    """What was missed, with the versions: a program that changed its stream is the likely cause."""
    if not state.unreadable_lines:
        return ""

    if state.unreadable_lines == 1:
        lines = "1 line"
    else:
        lines = f"{state.unreadable_lines} lines"

    if state.version:
        version = f"version {state.version}, "
    else:
        version = ""

    return f"{lines} could not be read in full ({version}tested with {state.row.tested_version or 'none'})"


def _classify_end(
    state: StreamState, finished: FinishedRun, config_error_statuses: Collection[int]
) -> tuple[Ending, str]:
    if state.completed and state.stopped_by_us and not finished.timed_out:
        return Ending.COMPLETED, ""

    ending, reason = classify_exit(finished)
    if finished.exit_status in config_error_statuses:
        ending = Ending.NOT_RUNNABLE
    if ending is not Ending.COMPLETED or state.completed:
        return ending, reason
    # Some end with 0 when they are told to
    if finished.sigterm_sent and not state.stopped_by_us:
        return Ending.FAILED, describe_early_stop(finished)

    if finished.skipped_lines:
        skipped = f"; {finished.skipped_lines} of its lines were too long to be read"
    else:
        skipped = ""

    if state.unreadable_lines:
        unread = f"; {_describe_unreadable_lines(state)}"
    else:
        unread = ""

    return Ending.FAILED, f"it ended without its final result{skipped}{unread}"
