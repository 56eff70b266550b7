"""`cursor`: the Cursor agent, headless. From its documentation: it could not be run here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from phasegate.agents.port import AgentEvent, AgentTask, EventKind, Launch, StreamReading, Talk
from phasegate.agents.program_launch import launch_of, model_option
from phasegate.agents.stream.claude import ClaudeStream
from phasegate.agents.stream.line import LineReader
from phasegate.agents.stream.state import StreamState
from phasegate.agents.stream.tool_use import ToolInput, tool_use
from phasegate.core.agents.harnesses import HarnessRow

_NAMES = {"writeToolCall": "write", "editToolCall": "edit", "deleteToolCall": "edit", "shellToolCall": "shell"}


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    permissions = ("--force", "--trust") if task.caged else ("--trust",)
    arguments = ("-p", "--output-format", "stream-json", *permissions, *model_option(task, "--model"))
    return launch_of(task, row, arguments)


def reading(row: HarnessRow, task: AgentTask, talk: Talk) -> StreamReading:
    return _CursorReading(StreamState(row, task, talk), task.checkout)


class _Call(msgspec.Struct, frozen=True):
    args: ToolInput = ToolInput()


class _ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    subtype: str = ""
    tool_call: Mapping[str, _Call] = {}


_Line = _ToolCall
_LINES: LineReader[_Line] = LineReader(_Line, speaking=())


class _CursorReading(ClaudeStream):
    def line(self, text: str) -> Iterable[AgentEvent]:
        event = self._state.read(_LINES, text)
        if event is None:
            return self._said(text)
        self._state.get_on()
        self._state.end_message()
        calls = event.tool_call.items() if event.subtype == "started" else ()
        return [tool_use(_NAMES.get(name, name), call.args, self._checkout) for name, call in calls]

    def _said(self, text: str) -> Iterable[AgentEvent]:
        """Its result is its end: it is known to stay on after it, so it is told to go."""
        events = [*super().line(text)]
        if any(event.kind is EventKind.END for event in events):
            self._state.stop()
        return events
