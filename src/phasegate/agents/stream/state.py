"""What a reading keeps of a stream, little whatever its length, and the report that follows from it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from io import StringIO
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentReport, AgentTask, Ending, FinishedRun, Talk, Usage
from phasegate.agents.stream.api_error import Trouble, meaning_of, shown
from phasegate.agents.stream.line import Line, LineReader
from phasegate.agents.stream.plain_output import (
    cut_short,
    ended_at_a_limit,
    ending_of_plain_program,
    retry_at_s,
    unknown_option,
)
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.core.answer.parse import parse_answer


class FirstSign:
    """Stops a job whose model gives no sign in time. Nothing is watched before `begin`."""

    def __init__(self, talk: Talk, within_s: float) -> None:
        self.missed = False
        self._within_s = within_s
        self._talk = talk
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """The job starts now."""
        self._timer = threading.Timer(self._within_s, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def seen(self) -> None:
        """The model gave a sign, or nobody waits for one any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self.missed = True
        self._talk.stop()

    def report(self) -> AgentReport:
        """What a run brought that was stopped for its silence."""
        reason = f"no sign of its model within {self._within_s:.0f} s; it may be waiting at a limit of its provider"
        remedy = "if its model is slow to begin, raise `first_sign_s` of the agent"
        return AgentReport("", Ending.SILENT, reason, remedy=remedy)


LONGEST_MESSAGE = 4_000_000
MOST_BLOCKERS = 20


class StreamState:
    """One run so far. Its last message is the answer; blockers in earlier ones are kept, the rest is gone.

    `completed` is set by the agent's own mark of a good end alone, and taken back by whatever it does after it.
    """

    def __init__(self, row: HarnessRow, task: AgentTask, talk: Talk) -> None:
        self.row = row
        self.first_sign = FirstSign(talk, task.agent.first_sign_s)
        self.usage: Usage | None = None
        self.completed = False
        self.trouble: Trouble | None = None  # its own report of a bad end
        self.retrying: Trouble | None = None  # what it is waiting for, unless it got on
        self.stopped_by_us = False
        self.cut = False
        self.is_whole = False  # the answer was given whole, whatever was missed before
        self.unread_lines = 0  # lines of its protocol of which something could not be read
        self.version = ""  # of the program, where it says so in its stream
        self._phase = task.phase
        self._talk = talk
        self._message = StringIO()
        self._is_over = False
        self._blockers: list[str] = []
        self._patience: threading.Timer | None = None

    def read(self, reader: LineReader[Line], text: str) -> Line | None:
        """A line of its protocol, or None. What cannot be read is counted, and the answer is cut if it may miss it."""
        found = reader.read(text)
        self.unread_lines += found.misfits
        if found.loses_text:
            self.lose_text()
        return found.line

    def lose_text(self) -> None:
        """A piece of the message in hand, or of the next one, cannot be read."""
        self.say("")
        self.cut = True

    def say(self, text: str) -> None:
        """Add to the message in hand, or begin the next one."""
        self.get_on()
        if self._is_over:
            self._begin()
        piece = text[: LONGEST_MESSAGE - self._message.tell()]
        self.cut = self.cut or len(text) > len(piece)
        self._message.write(piece)

    def end_message(self) -> None:
        self._is_over = True

    def replace(self, text: str) -> None:
        """The message in hand, as the agent gives it once more and whole."""
        if self.answer != text:
            self._begin()
            self.say(text)
        self.cut, self.is_whole = len(text) > LONGEST_MESSAGE, True

    def get_on(self) -> None:
        """Its model works: it has not ended, and it waits for nothing."""
        self.first_sign.seen()
        self.completed, self.trouble, self.retrying = False, None, None
        self.end_patience()

    def stop(self) -> None:
        """End a program that will not end, or not in time, by itself."""
        if not self.stopped_by_us:
            self.stopped_by_us = True
            self._talk.stop()

    def stop_unless_it_gets_on(self, within_s: float) -> None:
        """Be patient with a program that waits, and does not say for how long."""
        if self._patience is None:
            self._patience = threading.Timer(within_s, self.stop)
            self._patience.daemon = True
            self._patience.start()

    def end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    @property
    def answer(self) -> str:
        return self._message.getvalue()

    @property
    def blockers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._blockers))

    def _begin(self) -> None:
        text = self.answer
        self._message, self._is_over, self.cut, self.is_whole = StringIO(), False, False, False
        if "BLOCKER:" in text:
            found = parse_answer(text, self._phase, truncated=False).blockers
            self._blockers = [*self._blockers, *found][:MOST_BLOCKERS]


class ReadsStream:
    """The reading of a program that speaks of its own end; how it takes in a line is each program's own."""

    unusable: tuple[int, ...] = ()  # exit statuses that mean: wrongly set up

    def __init__(self, state: StreamState, checkout: Path) -> None:
        self._state = state
        self._checkout = checkout

    def begin(self) -> None:
        self._state.first_sign.begin()

    def report(self, finished: FinishedRun) -> AgentReport:
        return report_of_stream(self._state, finished, self.unusable)


def report_of_stream(state: StreamState, finished: FinishedRun, unusable: Collection[int]) -> AgentReport:
    """What a run brought whose program speaks of its own end. Exit statuses in `unusable` mean: wrongly set up."""
    state.end_patience()
    state.first_sign.seen()
    cut = state.cut or (finished.skipped_lines > 0 and not state.is_whole)  # what was too long may have been text
    report = AgentReport(
        state.answer,
        Ending.COMPLETED,
        cut=cut,
        usage=state.usage,
        blockers=state.blockers,
        remark=_unread(state),
    )
    if finished.over:
        return msgspec.structs.replace(report, ending=Ending.FAILED, reason=ended_at_a_limit(finished))
    trouble = state.trouble or (None if state.completed else state.retrying)
    # One that we stopped may have had to be killed: what it waited for is the reason, not the time that it had.
    if trouble is not None and (state.stopped_by_us or state.first_sign.missed or not finished.timed_out):
        meaning = meaning_of(trouble, state.row.sign_in, finished.ended_at_s)
        return msgspec.structs.replace(
            report,
            ending=meaning.ending,
            reason=shown(trouble),
            retry_at_s=meaning.retry_at_s,
            remedy=meaning.remedy,
        )
    if not state.completed and (option := unknown_option(finished.stderr)):
        return msgspec.structs.replace(report, **_unknown_option(state.row, option))
    if state.first_sign.missed and not state.completed:
        return msgspec.structs.replace(state.first_sign.report(), remark=report.remark)
    ending, reason = _ending(state, finished, unusable)
    again_s = retry_at_s(finished) if ending is Ending.RATE_LIMITED else None
    remedy = state.row.sign_in if ending is Ending.NOT_RUNNABLE and finished.exit_status in unusable else ""
    return msgspec.structs.replace(report, ending=ending, reason=reason, retry_at_s=again_s, remedy=remedy)


def _unknown_option(row: HarnessRow, option: str) -> dict[str, object]:
    """It was started with an option that its version does not have: ours, or one of the configured command."""
    versions = f"it was tested with {row.tested}; update it: {row.install}" if row.tested else "see its documentation"
    remedy = f"{versions}; or fix `command` in phasegate.toml, if the option is yours"
    return {"ending": Ending.NOT_RUNNABLE, "reason": f"it does not know the option {option}", "remedy": remedy}


def _unread(state: StreamState) -> str:
    """What was missed, with the versions: a program that changed its stream is the likely cause."""
    if not state.unread_lines:
        return ""
    lines = "1 line" if state.unread_lines == 1 else f"{state.unread_lines} lines"
    version = f"version {state.version}, " if state.version else ""
    return f"{lines} could not be read in full ({version}tested with {state.row.tested or 'none'})"


def _ending(state: StreamState, finished: FinishedRun, unusable: Collection[int]) -> tuple[Ending, str]:
    if state.completed and state.stopped_by_us and not finished.timed_out:
        return Ending.COMPLETED, ""
    ending, reason = ending_of_plain_program(finished)
    if finished.exit_status in unusable:
        ending = Ending.NOT_RUNNABLE
    if ending is not Ending.COMPLETED or state.completed:
        return ending, reason
    if finished.told_to_stop and not state.stopped_by_us:  # some end with 0 when they are told to
        return Ending.FAILED, cut_short(finished)
    skipped = f"; {finished.skipped_lines} of its lines were too long to be read" if finished.skipped_lines else ""
    unread = f"; {_unread(state)}" if state.unread_lines else ""
    return Ending.FAILED, f"it ended without its final result{skipped}{unread}"
