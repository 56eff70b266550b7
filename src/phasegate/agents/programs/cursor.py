"""`cursor`: the Cursor agent, headless. Written from its documentation; not tested with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from phasegate.agents.port import AgentEvent, AgentTask, EventKind, JobHandle, Launch, OutputParser
from phasegate.agents.program_launch import build_launch, model_option
from phasegate.agents.stream.claude import ClaudeStreamParser
from phasegate.agents.stream.line import LineReader
from phasegate.agents.stream.state import StreamState
from phasegate.agents.stream.tool_use import ToolInput, make_tool_event
from phasegate.core.agents.harnesses import HarnessRow

_TOOL_NAMES = {
    "writeToolCall": "write",
    "editToolCall": "edit",
    "deleteToolCall": "edit",
    "shellToolCall": "shell",
}


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    permissions = ("--force", "--trust") if task.sandboxed else ("--trust",)
    arguments = (
        "-p",
        "--output-format",
        "stream-json",
        *permissions,
        *model_option(task, "--model"),
    )
    return build_launch(task, row, arguments)


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return _CursorParser(StreamState(row, task, job), task.checkout)


class _CursorToolArguments(msgspec.Struct, frozen=True):
    args: ToolInput = ToolInput()


class _CursorToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    subtype: str = ""
    tool_call: Mapping[str, _CursorToolArguments] = {}


_Line = _CursorToolCall
_LINE_READER: LineReader[_Line] = LineReader(_Line, text_tags=())


class _CursorParser(ClaudeStreamParser):
    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse one line of the stream into events."""
        event = self._state.parse_line(_LINE_READER, text)
        if event is None:
            return self._parse_claude_line(text)

        self._state.mark_progress()
        self._state.end_message()
        calls = event.tool_call.items() if event.subtype == "started" else ()

        return [
            make_tool_event(_TOOL_NAMES.get(name, name), call.args, self._checkout)
            for name, call in calls
        ]

    def _parse_claude_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse a line, and stop the program after its result: it may not exit by itself."""
        events = [*super().parse_line(text)]
        if any(event.kind is EventKind.END for event in events):
            self._state.stop()
        return events
