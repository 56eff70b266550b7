"""`codex`: Codex, headless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentEvent, AgentTask, Ending, EventKind, Launch, StreamReading, Talk, Usage
from phasegate.agents.program_launch import LONGEST_TOOL_S, TOOLS_SERVER, launch_of, model_option
from phasegate.agents.stream.api_error import Trouble, meaning_of
from phasegate.agents.stream.line import LineReader, count
from phasegate.agents.stream.state import ReadsStream, StreamState
from phasegate.agents.stream.tool_use import file_change, notice, tool_result
from phasegate.core.agents.harnesses import HarnessRow

# Its own configuration is not read: the project's would need its trust, and the job's home has none.
_ARGUMENTS = (
    *("exec", "--json", "--color", "never", "--ephemeral", "--ignore-user-config", "--ignore-rules"),
    *("-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false"),
    "--skip-git-repo-check",
)
_SERVER = (
    f'mcp_servers.phasegate={{command="{TOOLS_SERVER[0]}",args=["{TOOLS_SERVER[1]}"],'
    f'startup_timeout_sec=60,tool_timeout_sec={LONGEST_TOOL_S},default_tools_approval_mode="approve"}}'
)
_FREE = ("--dangerously-bypass-approvals-and-sandbox",)
_OWN_SANDBOX = ("--sandbox", "workspace-write")
PATIENCE_S = 30.0  # it waits as long as a rate limit lasts, hours maybe: we wait better
_MOST_RECONNECTS = 25  # without a network it would go on for ever


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    permissions = _FREE if task.caged else _OWN_SANDBOX
    tools = ("-c", _SERVER) if task.offers_tools else ()
    arguments = (*_ARGUMENTS, *tools, *model_option(task, "-m"), *permissions, "-")
    return launch_of(task, row, arguments)


def reading(row: HarnessRow, task: AgentTask, talk: Talk) -> StreamReading:
    return _CodexReading(StreamState(row, task, talk), task.checkout)


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


class _CodexStarted(msgspec.Struct, frozen=True, tag="item.started"):
    item: _CodexItem


class _CodexDone(msgspec.Struct, frozen=True, tag="item.completed"):
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


_Line = _CodexStarted | _CodexDone | _CodexTurnStarted | _CodexTurnCompleted | _CodexTurnFailed | _CodexError
_LINES: LineReader[_Line] = LineReader(_Line, speaking=("item.completed",))


class _CodexReading(ReadsStream):
    def __init__(self, state: StreamState, checkout: Path) -> None:
        super().__init__(state, checkout)
        self._reconnects = 0

    def line(self, text: str) -> Iterable[AgentEvent]:
        match self._state.read(_LINES, text):
            case None:
                return ()  # of another kind, or no line of the protocol
            case _CodexStarted(item) if item.type == "command_execution":
                return self._doing(AgentEvent(EventKind.COMMAND, item.command))
            case _CodexStarted():
                return self._doing()
            case _CodexTurnStarted():  # by the program: its model has not been asked yet
                self._state.completed = False
                return ()
            case _CodexDone(item):
                return self._done(item)
            case _CodexError(message):
                return self._wait(message)
            case _CodexTurnCompleted(usage):
                return self._end(usage)
            case _CodexTurnFailed(error):
                self._state.trouble = Trouble(error.message)
                return (AgentEvent(EventKind.END, error.message, failed=True),)

    def _doing(self, *events: AgentEvent) -> Iterable[AgentEvent]:
        self._state.get_on()
        self._reconnects = 0
        return events

    def _done(self, item: _CodexItem) -> Iterator[AgentEvent]:
        failed = item.status in ("failed", "declined")
        if item.type != "error":
            self._doing()
        match item.type:
            case "agent_message":
                if item.text is None:
                    self._state.lose_text()
                self._state.say(item.text or "")
                self._state.end_message()
                yield AgentEvent(EventKind.TEXT, item.text or "")
            case "file_change":
                for change in item.changes:
                    yield file_change(change.path, self._checkout, removed=change.kind == "delete", failed=failed)
            case "command_execution":
                if failed:
                    yield notice(f"failed: {item.command}", failed=True, exit_code=item.exit_code)
                yield from tool_result(item.aggregated_output, failed=failed, exit_code=item.exit_code)
            case "error":
                yield notice(item.message, failed=True)
            case "reasoning":
                pass
            case other:
                yield AgentEvent(EventKind.TOOL, item.tool or item.query or other, failed=failed)

    def _wait(self, message: str) -> Iterable[AgentEvent]:
        """`error` is not the end: "Reconnecting... 2/5" comes this way too."""
        trouble = self._state.retrying = Trouble(message)
        self._reconnects += 1
        if meaning_of(trouble, "", 0.0).ending is Ending.RATE_LIMITED:
            self._state.stop_unless_it_gets_on(PATIENCE_S)
        if self._reconnects > _MOST_RECONNECTS:
            self._state.stop()
        return (notice(message, failed=True),)

    def _end(self, tokens: _CodexTokens | None) -> Iterator[AgentEvent]:
        if tokens is not None:
            self._state.usage = Usage(
                count(tokens.input_tokens), count(tokens.cached_input_tokens), count(tokens.output_tokens)
            )
            yield AgentEvent(EventKind.USAGE, usage=self._state.usage)
        self._state.get_on()
        self._state.completed = True
        yield AgentEvent(EventKind.END)
