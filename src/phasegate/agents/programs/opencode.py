"""`opencode`: OpenCode, headless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from phasegate.agents.port import (
    AgentEvent,
    AgentReport,
    AgentTask,
    EventKind,
    FinishedRun,
    JobHandle,
    Launch,
    OutputParser,
    Usage,
)
from phasegate.agents.program_launch import (
    MCP_SERVER_COMMAND,
    TOOL_TIMEOUT_S,
    build_launch,
    encode_settings,
    model_option,
)
from phasegate.agents.stream.api_error import ReportedError
from phasegate.agents.stream.line import LineReader, to_token_count
from phasegate.agents.stream.state import StreamParser, StreamState
from phasegate.agents.stream.tool_use import (
    ToolInput,
    make_notice_event,
    make_result_events,
    make_tool_event,
)
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.errors import ConfigError

_ENV = {
    # The project's `opencode.json` could send the key to another host.
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    # No plugins: those in the project's `.opencode` are programs.
    "OPENCODE_PURE": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_SHARE": "1",
}
_NO_SHELL = {
    "OPENCODE_PERMISSION": '{"bash":{"*":"deny","git add *":"allow","git commit *":"allow"}}'
}
_MCP_SERVER = {
    "type": "local",
    "command": [*MCP_SERVER_COMMAND],
    "enabled": True,
    "timeout": TOOL_TIMEOUT_S * 1_000,
}
_MCP_SETTINGS = {
    ".config/opencode/opencode.json": encode_settings({"mcp": {"phasegate": _MCP_SERVER}})
}
_ERRORS_ON_STDERR = ("--print-logs", "--log-level", "ERROR")
_STREAM_ERROR = 'message="stream error"'
_MAIN_MODEL = " small=false "
_CAUSE = 'error.error="'
# It waits until a rate limit ends, perhaps for hours. We stop it instead and reschedule the job.
MAX_RETRY_WAIT_S = 120.0
MAX_LOG_LINE_CHARS = 4_000
# If the stream of its model is cut, it repeats the request without end.
_MAX_EMPTY_STEPS = 5


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    _refuse_plugins(task.checkout)
    arguments = ("run", "--format", "json", "--auto", *_ERRORS_ON_STDERR, *model_option(task, "-m"))
    env = _ENV if task.sandboxed else {**_ENV, **_NO_SHELL}
    home_files = _MCP_SETTINGS if task.has_mcp_tools else None

    return build_launch(task, row, arguments, env=env, home_files=home_files)


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return _OpenCodeParser(StreamState(row, task, job), task.checkout)


def _refuse_plugins(checkout: Path) -> None:
    """Refuse repositories with OpenCode plugins.

    They are programs that start with OpenCode and can read its key, and no option disables them.
    """
    folder = checkout / ".opencode"
    plugins = [path for path in (folder / "plugin", folder / "plugins") if path.exists()]
    for settings_folder in (checkout, folder):
        for name in ("opencode.json", "opencode.jsonc"):
            path = settings_folder / name
            if path.is_file() and b"plugin" in path.read_bytes():
                plugins.append(path)

    if plugins:
        first = plugins[0].relative_to(checkout)
        raise ConfigError(
            f"opencode would run this repository's plugins: {first}",
            "use another agent here, or remove them from the base branch",
        )


class _OpenCodeCacheTokens(msgspec.Struct, frozen=True):
    read: float | None = None
    write: float | None = None


class _OpenCodeTokens(msgspec.Struct, frozen=True):
    input: float | None = None
    output: float | None = None
    reasoning: float | None = None
    cache: _OpenCodeCacheTokens = _OpenCodeCacheTokens()


class _OpenCodeToolState(msgspec.Struct, frozen=True):
    status: str = ""
    input: ToolInput = ToolInput()
    output: object = None


class _OpenCodeTextPart(msgspec.Struct, frozen=True):
    text: str


class _OpenCodeToolPart(msgspec.Struct, frozen=True):
    tool: str = ""
    state: _OpenCodeToolState = _OpenCodeToolState()


class _OpenCodeStepPart(msgspec.Struct, frozen=True):
    reason: str = ""
    tokens: _OpenCodeTokens = _OpenCodeTokens()
    cost: float | None = None


class _OpenCodeStepStart(msgspec.Struct, frozen=True, tag="step_start"):
    pass


class _OpenCodeText(msgspec.Struct, frozen=True, tag="text"):
    part: _OpenCodeTextPart


class _OpenCodeToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    part: _OpenCodeToolPart = _OpenCodeToolPart()


class _OpenCodeStepFinish(msgspec.Struct, frozen=True, tag="step_finish"):
    part: _OpenCodeStepPart = _OpenCodeStepPart()


class _OpenCodeErrorData(msgspec.Struct, frozen=True, rename="camel"):
    message: str = ""
    status_code: int | None = None
    response_headers: Mapping[str, str] = {}


class _OpenCodeErrorBody(msgspec.Struct, frozen=True):
    name: str = ""
    data: _OpenCodeErrorData = _OpenCodeErrorData()


class _OpenCodeError(msgspec.Struct, frozen=True, tag="error"):
    error: _OpenCodeErrorBody = _OpenCodeErrorBody()


_Line = _OpenCodeStepStart | _OpenCodeText | _OpenCodeToolUse | _OpenCodeStepFinish | _OpenCodeError
_LINE_READER: LineReader[_Line] = LineReader(_Line, text_tags=("text",))


class _OpenCodeParser(StreamParser):
    """The parser of OpenCode's stream, which has no final event.

    The run is completed if the last step ended with `stop` and no event followed.
    """

    def __init__(self, state: StreamState, checkout: Path) -> None:
        super().__init__(state, checkout)
        self._retry_after = ""
        self._empty_steps = 0

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse one line of the stream into events."""
        match self._state.parse_line(_LINE_READER, text):
            case None:
                # another type, or not a line of the protocol
                return ()
            case _OpenCodeStepStart():
                # This is not progress: every retry starts with one.
                self._state.completed = False
                self._state.end_message()
                return ()
            case _OpenCodeText(part):
                self._state.add_text(part.text)
                return (AgentEvent(EventKind.TEXT, part.text),)
            case _OpenCodeToolUse(part):
                self._state.mark_progress()
                failed = part.state.status == "error"
                call = make_tool_event(part.tool, part.state.input, self._checkout, failed=failed)
                return (call, *make_result_events(part.state.output, failed=failed))
            case _OpenCodeStepFinish(part):
                return self._handle_step_finish(part)
            case _OpenCodeError(error):
                return self._handle_error(error)

    def parse_stderr_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse a line of OpenCode's log, the only source of retries and their causes."""
        line, _, cause = text[:MAX_LOG_LINE_CHARS].partition(_CAUSE)
        # Requests to the small model, which writes titles, do not count.
        if not cause or _STREAM_ERROR not in line or _MAIN_MODEL not in line:
            return ()

        message = cause.partition('"')[0]
        self._state.retry_error = ReportedError(
            f"its model temporarily does not respond: {message}"
        )
        self._state.stop_if_no_progress(MAX_RETRY_WAIT_S)

        return (make_notice_event(cause, failed=True),)

    def build_report(self, finished: FinishedRun) -> AgentReport:
        error = self._state.error
        if error is not None and self._retry_after.isdigit():
            retry_at_s = finished.ended_at_s + int(self._retry_after[:7])
            self._state.error = error._replace(retry_at_s=retry_at_s)
        return super().build_report(finished)

    def _handle_step_finish(self, part: _OpenCodeStepPart) -> Iterator[AgentEvent]:
        """Yield the usage of a step; stop the program after several empty steps."""
        self._state.mark_progress()
        self._state.usage = self._add_usage(part)
        yield AgentEvent(EventKind.USAGE, usage=self._state.usage)
        self._state.completed = part.reason == "stop"
        if part.reason == "unknown":
            self._empty_steps += 1
        else:
            self._empty_steps = 0

        if self._empty_steps >= _MAX_EMPTY_STEPS:
            self._state.retry_error = ReportedError("the model's stream was cut off repeatedly")
            self._state.stop()

        if self._state.completed:
            yield AgentEvent(EventKind.END)

    def _add_usage(self, part: _OpenCodeStepPart) -> Usage:
        """Add the usage of a step to the total; each step reports only its own."""
        total = self._state.usage or Usage(cost_usd=0.0)
        tokens = part.tokens
        cache_read = to_token_count(tokens.cache.read)
        input_tokens = to_token_count(tokens.input) + to_token_count(tokens.cache.write)
        output_tokens = to_token_count(tokens.output) + to_token_count(tokens.reasoning)

        return Usage(
            input_tokens=total.input_tokens + input_tokens + cache_read,
            cached_input_tokens=total.cached_input_tokens + cache_read,
            output_tokens=total.output_tokens + output_tokens,
            cost_usd=(total.cost_usd or 0.0) + (part.cost or 0.0),
        )

    def _handle_error(self, error: _OpenCodeErrorBody) -> Iterable[AgentEvent]:
        self._state.mark_progress()
        self._state.error = ReportedError(
            error.data.message or error.name or "it reports an error", error.data.status_code
        )
        self._retry_after = error.data.response_headers.get("retry-after", "")
        return (AgentEvent(kind=EventKind.END, text=error.data.message, failed=True),)
