"""`codex`: Codex, headless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from phasegate.agents.port import (
    AgentEvent,
    AgentTask,
    Ending,
    EventKind,
    JobHandle,
    Launch,
    OutputParser,
    Usage,
)
from phasegate.agents.program_launch import (
    MCP_SERVER_COMMAND,
    TOOL_TIMEOUT_S,
    build_launch,
    model_option,
)
from phasegate.agents.stream.api_error import ReportedError, interpret_error
from phasegate.agents.stream.line import LineReader, to_token_count
from phasegate.agents.stream.state import StreamParser, StreamState
from phasegate.agents.stream.tool_use import make_file_event, make_notice_event, make_result_events
from phasegate.core.agents.harnesses import HarnessRow

# Its own configuration is not read: that of the project is read only in trusted folders, and the
# job's HOME has no list of them.
_ARGUMENTS = (
    "exec",
    "--json",
    *("--color", "never"),
    "--ephemeral",
    "--ignore-user-config",
    "--ignore-rules",
    *("-c", "check_for_update_on_startup=false"),
    *("-c", "analytics.enabled=false"),
    "--skip-git-repo-check",
)
_MCP_SERVER = (
    f'mcp_servers.phasegate={{command="{MCP_SERVER_COMMAND[0]}",args=["{MCP_SERVER_COMMAND[1]}"],'
    f"startup_timeout_sec=60,tool_timeout_sec={TOOL_TIMEOUT_S},"
    'default_tools_approval_mode="approve"}'
)
_BYPASS_SANDBOX = ("--dangerously-bypass-approvals-and-sandbox",)
_OWN_SANDBOX = ("--sandbox", "workspace-write")
# It waits until a rate limit ends, perhaps for hours. We stop it instead and reschedule the job.
MAX_RETRY_WAIT_S = 30.0
# Without a network it would reconnect for ever.
_MAX_RECONNECTS = 25


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    permissions = _BYPASS_SANDBOX if task.sandboxed else _OWN_SANDBOX
    tools = ("-c", _MCP_SERVER) if task.has_mcp_tools else ()
    arguments = (*_ARGUMENTS, *tools, *model_option(task, "-m"), *permissions, "-")
    return build_launch(task, row, arguments)


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return _CodexParser(StreamState(row, task, job), task.checkout)


class _CodexChange(msgspec.Struct, frozen=True):
    path: str = ""
    kind: str = ""


class _CodexItem(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None
    message: str = ""
    command: str = ""
    aggregated_output: object = None
    exit_code: int | None = None
    status: str = ""
    changes: tuple[_CodexChange, ...] = ()
    tool: str = ""
    query: str = ""


class _CodexItemStarted(msgspec.Struct, frozen=True, tag="item.started"):
    item: _CodexItem


class _CodexItemCompleted(msgspec.Struct, frozen=True, tag="item.completed"):
    item: _CodexItem


class _CodexTurnStarted(msgspec.Struct, frozen=True, tag="turn.started"):
    pass


class _CodexTokens(msgspec.Struct, frozen=True):
    input_tokens: float | None = None
    cached_input_tokens: float | None = None
    output_tokens: float | None = None


class _CodexTurnCompleted(msgspec.Struct, frozen=True, tag="turn.completed"):
    usage: _CodexTokens | None = None


class _CodexErrorText(msgspec.Struct, frozen=True):
    message: str = ""


class _CodexTurnFailed(msgspec.Struct, frozen=True, tag="turn.failed"):
    error: _CodexErrorText = _CodexErrorText()


class _CodexError(msgspec.Struct, frozen=True, tag="error"):
    message: str = ""


_Line = (
    _CodexItemStarted
    | _CodexItemCompleted
    | _CodexTurnStarted
    | _CodexTurnCompleted
    | _CodexTurnFailed
    | _CodexError
)
_LINE_READER: LineReader[_Line] = LineReader(_Line, text_tags=("item.completed",))


class _CodexParser(StreamParser):
    def __init__(self, state: StreamState, checkout: Path) -> None:
        super().__init__(state, checkout)
        self._reconnects = 0

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse one line of the stream into events."""
        match self._state.parse_line(_LINE_READER, text):
            case None:
                # another type, or not a line of the protocol
                return ()
            case _CodexItemStarted(item) if item.type == "command_execution":
                return self._mark_progress(AgentEvent(EventKind.COMMAND, item.command))
            case _CodexItemStarted():
                return self._mark_progress()
            case _CodexTurnStarted():
                # Sent by the program itself: its model has not been called yet.
                self._state.completed = False
                return ()
            case _CodexItemCompleted(item):
                return self._handle_item(item)
            case _CodexError(message):
                return self._handle_error(message)
            case _CodexTurnCompleted(usage):
                return self._handle_turn_end(usage)
            case _CodexTurnFailed(error):
                self._state.error = ReportedError(error.message)
                return (AgentEvent(kind=EventKind.END, text=error.message, failed=True),)

    def _mark_progress(self, *events: AgentEvent) -> Iterable[AgentEvent]:
        self._state.mark_progress()
        self._reconnects = 0
        return events

    def _handle_item(self, item: _CodexItem) -> Iterator[AgentEvent]:
        """Yield the events of a completed item, and update the stream state."""
        failed = item.status in ("failed", "declined")
        if item.type != "error":
            self._mark_progress()

        match item.type:
            case "agent_message":
                if item.text is None:
                    self._state.mark_text_lost()

                self._state.add_text(item.text or "")
                self._state.end_message()
                yield AgentEvent(EventKind.TEXT, item.text or "")
            case "file_change":
                for change in item.changes:
                    yield make_file_event(
                        change.path, self._checkout, removed=change.kind == "delete", failed=failed
                    )
            case "command_execution":
                if failed:
                    yield make_notice_event(
                        f"failed: {item.command}", failed=True, exit_code=item.exit_code
                    )

                yield from make_result_events(
                    item.aggregated_output, failed=failed, exit_code=item.exit_code
                )
            case "error":
                yield make_notice_event(item.message, failed=True)
            case "reasoning":
                pass
            case other:
                yield AgentEvent(
                    kind=EventKind.TOOL, text=item.tool or item.query or other, failed=failed
                )

    def _handle_error(self, message: str) -> Iterable[AgentEvent]:
        """Handle an `error`, which is not the end: "Reconnecting... 2/5" is one too."""
        error = ReportedError(message)
        self._state.retry_error = error
        self._reconnects += 1
        if interpret_error(error, "", 0.0).ending is Ending.RATE_LIMITED:
            self._state.stop_if_no_progress(MAX_RETRY_WAIT_S)
        if self._reconnects > _MAX_RECONNECTS:
            self._state.stop()

        return (make_notice_event(message, failed=True),)

    def _handle_turn_end(self, tokens: _CodexTokens | None) -> Iterator[AgentEvent]:
        """Mark the turn as completed, and yield its usage and end."""
        if tokens is not None:
            self._state.usage = Usage(
                input_tokens=to_token_count(tokens.input_tokens),
                cached_input_tokens=to_token_count(tokens.cached_input_tokens),
                output_tokens=to_token_count(tokens.output_tokens),
            )
            yield AgentEvent(EventKind.USAGE, usage=self._state.usage)

        self._state.mark_progress()
        self._state.completed = True
        yield AgentEvent(EventKind.END)
