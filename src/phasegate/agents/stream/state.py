"""The state that a parser keeps of a stream, in bounded memory, and the report built from it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from io import StringIO
from pathlib import Path

from msgspec.structs import replace

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
    """A timer that stops a job whose model sends no output in time."""

    def __init__(self, job: JobHandle, timeout_s: float) -> None:
        self.expired = False
        self._has_output = False
        self._timeout_s = timeout_s
        self._job = job
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Start the timer; call it when the job starts."""
        self._timer = threading.Timer(self._timeout_s, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def mark_output(self) -> None:
        """Record that the model sent output."""
        self._has_output = True
        self.cancel()

    def is_silent(self, finished: FinishedRun) -> bool:
        """Return True if the model sent nothing until the timer or the time of the job ended."""
        ran_out_of_time = finished.timed_out or finished.sigterm_sent
        if finished.stop_requested:
            ran_out_of_time = False
        return self.expired or (ran_out_of_time and not self._has_output)

    def cancel(self) -> None:
        """Cancel the timer: the model sent output, or the job has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.expired = True
        self._job.stop()

    def build_report(self, finished: FinishedRun) -> AgentReport:
        """Build the report of a run that was stopped because its model sent no output."""
        waited_s = self._timeout_s if self.expired else finished.duration_s
        return AgentReport(
            answer="",
            ending=Ending.SILENT,
            reason=f"no output from its model within {waited_s:.0f} s; "
            "it may be rate-limited by its provider",
            remedy="if its model starts slowly, raise `first_output_timeout_s` of the agent",
        )


MAX_MESSAGE_CHARS = 4_000_000
MAX_BLOCKERS = 20


class StreamState:
    """The state of one run.

    Its last message is the answer; of earlier messages only blockers are kept. `completed` is set
    only when the agent reports success, and reset by any activity after that.
    """

    def __init__(self, row: HarnessRow, task: AgentTask, job: JobHandle) -> None:
        self.row = row
        self.first_output_timer = FirstOutputTimer(job, task.agent.first_output_timeout_s)
        self.usage: Usage | None = None
        self.completed = False
        # failure that the agent reported as its end
        self.error: ReportedError | None = None
        # error that it is retrying; None once there is progress
        self.retry_error: ReportedError | None = None
        self.stopped_by_us = False
        self.truncated = False
        # the program repeated the whole answer, so that nothing of it is missing
        self.has_full_answer = False
        # lines of its protocol that could not be read completely
        self.unreadable_lines = 0
        # version of the program, if it is in its stream
        self.version = ""
        self._phase = task.phase
        self._job = job
        self._message = StringIO()
        self._message_ended = False
        self._blockers: list[str] = []
        self._progress_timer: threading.Timer | None = None

    def parse_line(self, reader: LineReader[Line], text: str) -> Line | None:
        """Parse a line of its protocol, or return None for other lines.

        Unreadable lines are counted, and the answer is truncated if a part of it may be missing.
        """
        parsed = reader.parse_line(text)
        if parsed.has_invalid_fields:
            self.unreadable_lines += 1
        if parsed.loses_text:
            self.mark_text_lost()

        return parsed.line

    def mark_text_lost(self) -> None:
        """Record that a part of the current or next message could not be read."""
        self.add_text("")
        self.truncated = True

    def add_text(self, text: str) -> None:
        """Add text to the current message; start a new one if it has ended."""
        self.mark_progress()
        if self._message_ended:
            self._start_message()

        kept = text[: MAX_MESSAGE_CHARS - self._message.tell()]
        if len(kept) < len(text):
            self.truncated = True
        self._message.write(kept)

    def end_message(self) -> None:
        self._message_ended = True

    def replace_message(self, text: str) -> None:
        """Replace the current message with the complete text that the program sends at its end."""
        if self.answer != text:
            self._start_message()
            self.add_text(text)
        self.truncated = len(text) > MAX_MESSAGE_CHARS
        self.has_full_answer = True

    def mark_progress(self) -> None:
        """Record that the model is working: the run has not ended and is not waiting."""
        self.first_output_timer.mark_output()
        self.completed = False
        self.error = None
        self.retry_error = None
        self.cancel_progress_timer()

    def stop(self) -> None:
        """Stop a program that would not exit by itself, or not in time."""
        if not self.stopped_by_us:
            self.stopped_by_us = True
            self._job.stop()

    def stop_if_no_progress(self, timeout_s: float) -> None:
        """Stop a program that waits for an unknown time, unless it makes progress in time."""
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
            blockers = parse_answer(text, self._phase, truncated=False).blockers
            self._blockers = [*self._blockers, *blockers][:MAX_BLOCKERS]


class StreamParser:
    """The base of parsers for programs that report their own end; subclasses parse the lines."""

    # exit statuses for a wrong configuration
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
    """Build the report of a program that reports its own end.

    `config_error_statuses` are the exit statuses for a wrong configuration.
    """
    state.cancel_progress_timer()
    state.first_output_timer.cancel()
    # A line that was too long may have contained text.
    lost_line = finished.skipped_lines > 0 and not state.has_full_answer
    report = AgentReport(
        answer=state.answer,
        ending=Ending.COMPLETED,
        truncated=state.truncated or lost_line,
        usage=state.usage,
        blockers=state.blockers,
        remark=_describe_unreadable_lines(state),
    )

    if finished.exceeded_limit:
        return replace(report, ending=Ending.FAILED, reason=describe_exceeded_limit(finished))

    error = state.error
    if error is None and not state.completed:
        error = state.retry_error

    # A program that we stopped may have needed a kill; the reason is still the error, not the time.
    was_stopped = state.stopped_by_us or state.first_output_timer.expired
    if error is not None and (was_stopped or not finished.timed_out):
        meaning = interpret_error(error, state.row.sign_in_hint, finished.ended_at_s)
        return replace(
            report,
            ending=meaning.ending,
            reason=format_error(error),
            retry_at_s=meaning.retry_at_s,
            remedy=meaning.remedy,
        )

    option = find_unknown_option(finished.stderr)
    if option and not state.completed:
        return replace(report, **_describe_unknown_option(state.row, option))

    if state.first_output_timer.is_silent(finished) and not state.completed:
        return replace(state.first_output_timer.build_report(finished), remark=report.remark)

    ending, reason = _classify_end(state, finished, config_error_statuses)
    retry_at_s = None
    if ending is Ending.RATE_LIMITED:
        retry_at_s = find_retry_time_s(finished)

    remedy = ""
    if ending is Ending.NOT_RUNNABLE and finished.exit_status in config_error_statuses:
        remedy = state.row.sign_in_hint

    return replace(report, ending=ending, reason=reason, retry_at_s=retry_at_s, remedy=remedy)


def _describe_unknown_option(row: HarnessRow, option: str) -> dict[str, object]:
    """Describe that the program lacks an option, which we or the configured command passed."""
    advice = "see its documentation"
    if row.tested_version:
        advice = f"it was tested with {row.tested_version}; update it: {row.install_instruction}"

    return {
        "ending": Ending.NOT_RUNNABLE,
        "reason": f"it does not know the option {option}",
        "remedy": f"{advice}; or remove it from `command` in phasegate.toml, if it is set there",
    }


def _describe_unreadable_lines(state: StreamState) -> str:
    """Describe the unreadable lines with the versions: likely the stream format has changed."""
    if not state.unreadable_lines:
        return ""

    lines = "1 line" if state.unreadable_lines == 1 else f"{state.unreadable_lines} lines"
    versions = f"tested with {state.row.tested_version or 'none'}"
    if state.version:
        versions = f"version {state.version}, {versions}"

    return f"{lines} could not be read completely ({versions})"


def _classify_end(
    state: StreamState, finished: FinishedRun, config_error_statuses: Collection[int]
) -> tuple[Ending, str]:
    """Return how the run ended, by its final result, then by its exit status."""
    if state.completed and state.stopped_by_us and not finished.timed_out:
        return Ending.COMPLETED, ""

    ending, reason = classify_exit(finished)
    if finished.exit_status in config_error_statuses:
        ending = Ending.NOT_RUNNABLE
    if ending is not Ending.COMPLETED or state.completed:
        return ending, reason
    # Some programs exit with status 0 on SIGTERM.
    if finished.sigterm_sent and not state.stopped_by_us:
        return Ending.FAILED, describe_early_stop(finished)

    reason = "it ended without its final result"
    if finished.skipped_lines:
        reason += f"; {finished.skipped_lines} of its lines were too long to be read"
    if state.unreadable_lines:
        reason += f"; {_describe_unreadable_lines(state)}"

    return Ending.FAILED, reason
