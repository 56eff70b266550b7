"""`gemini`: Gemini CLI, headless."""

from __future__ import annotations

import os
import re
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
    PROXY_VARIABLES,
    TOOL_TIMEOUT_S,
    build_launch,
    encode_settings,
    escape_mentions,
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

# It works in trusted folders only, where it reads unset variables from `.gemini/.env`. So all
# variables that choose a host, a key or a program are set, to an empty value if necessary.
_BLANKED_VARIABLES = (
    *PROXY_VARIABLES,
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
    "CODE_ASSIST_ENDPOINT",
    "CODE_ASSIST_API_VERSION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_ACCESS_TOKEN",
    "CLOUDSDK_CONFIG",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
    "GCE_METADATA_HOST",
    "GCE_METADATA_IP",
    "GEMINI_CLI_CUSTOM_HEADERS",
    "GEMINI_SANDBOX",
    "GEMINI_SANDBOX_PROXY_COMMAND",
    "GEMINI_SYSTEM_MD",
    "GEMINI_TELEMETRY_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "grpc_proxy",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NODE_OPTIONS",
    "NODE_EXTRA_CA_CERTS",
    "CLOUD_SHELL",
    "GEMINI_CLI_HOME",
    "GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
)
_ENV = {
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    # Keep it in one process, so that signals reach it.
    "GEMINI_CLI_NO_RELAUNCH": "true",
    "GEMINI_TELEMETRY_ENABLED": "false",
    "NODE_TLS_REJECT_UNAUTHORIZED": "1",
}
# These are written as system settings, because project settings override user settings and may
# contain commands to run.
_SETTINGS_FILE = ".gemini/system.json"
_SETTINGS = {
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 3},
    "advanced": {"ignoreLocalEnv": True},
    # Do not search for file names after an `@` in a prompt.
    "context": {"fileFiltering": {"enableRecursiveFileSearch": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "hooksConfig": {"enabled": False},
    "tools": {"discoveryCommand": "", "callCommand": "", "sandbox": False},
    "mcp": {"serverCommand": ""},
}
_MCP_SERVER = {
    "command": MCP_SERVER_COMMAND[0],
    "args": [*MCP_SERVER_COMMAND[1:]],
    "timeout": TOOL_TIMEOUT_S * 1_000,
    "trust": True,
}
_RETRY_LINE = re.compile(r"\bAttempt [0-9]+ failed with status [0-9]{3}\b")
_LOOP_MESSAGE = "Loop detected"


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    """Build the command line, settings and environment of Gemini CLI."""
    # Only an MCP server of this name may run. A project cannot guess the name to add its own.
    server_name = f"phasegate-{task.envelope.job_id}"
    settings = {**_SETTINGS, **_select_auth(os.environ)}
    if task.has_mcp_tools:
        settings["mcpServers"] = {server_name: _MCP_SERVER}

    arguments = (
        *("-o", "stream-json"),
        *("--allowed-mcp-server-names", server_name),
        *("--approval-mode", "yolo" if task.sandboxed else "auto_edit"),
        *model_option(task, "-m"),
    )

    base_launch = build_launch(
        task,
        row,
        arguments,
        env=_ENV,
        home_files={_SETTINGS_FILE: encode_settings(settings)},
        stdin=escape_mentions(task),
    )

    return msgspec.structs.replace(
        base_launch,
        default_env=dict.fromkeys(_BLANKED_VARIABLES, ""),
        home_path_variables={"GEMINI_CLI_SYSTEM_SETTINGS_PATH": _SETTINGS_FILE},
    )


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return _GeminiParser(StreamState(row, task, job), task.checkout)


def _select_auth(environment: Mapping[str, str]) -> dict[str, object]:
    """Select its sign-in method.

    Its own choice refuses a key together with a base URL, and never uses OAuth.
    """
    if environment.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        kind = "vertex-ai"
    elif environment.get("GEMINI_API_KEY"):
        kind = "gemini-api-key"
    elif environment.get("GOOGLE_API_KEY"):
        kind = "vertex-ai"
    else:
        kind = "oauth-personal"

    return {"security": {"auth": {"selectedType": kind}}}


class _GeminiMessage(msgspec.Struct, frozen=True, tag="message"):
    role: str
    content: str


class _GeminiToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    tool_name: str = ""
    parameters: ToolInput = ToolInput()


class _GeminiErrorText(msgspec.Struct, frozen=True):
    type: str = ""
    message: str = ""


class _GeminiToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    status: str = ""
    error: _GeminiErrorText | None = None
    output: object = None


class _GeminiError(msgspec.Struct, frozen=True, tag="error"):
    message: str = ""


class _GeminiStats(msgspec.Struct, frozen=True):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached: float | None = None


class _GeminiResult(msgspec.Struct, frozen=True, tag="result"):
    status: str = ""
    # any value means failure
    error: object = None
    stats: _GeminiStats | None = None


_Line = _GeminiMessage | _GeminiToolUse | _GeminiToolResult | _GeminiError | _GeminiResult
_LINE_READER: LineReader[_Line] = LineReader(_Line, text_tags=("message",))


class _GeminiParser(StreamParser):
    # no sign-in, no sandbox, invalid settings, an untrusted folder
    config_error_statuses = (41, 44, 52, 55)

    def __init__(self, state: StreamState, checkout: Path) -> None:
        super().__init__(state, checkout)
        self._last_error = ""

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse one line of the stream into events."""
        match self._state.parse_line(_LINE_READER, text):
            case None:
                # another type, or not a line of the protocol
                return ()
            case _GeminiMessage("assistant", content):
                self._state.add_text(content)
                return (AgentEvent(kind=EventKind.TEXT, text=content, is_partial=True),)
            case _GeminiMessage(role) if role != "user":
                self._state.mark_text_lost()
                return ()
            case _GeminiToolUse(name, parameters):
                self._state.mark_progress()
                self._state.end_message()
                return (make_tool_event(name, parameters, self._checkout),)
            case _GeminiToolResult("error", error):
                return (
                    make_notice_event(error.message if error else "a tool failed", failed=True),
                )
            case _GeminiToolResult(_, _, output):
                return make_result_events(output)
            case _GeminiError(message):
                self._last_error = message
                return (make_notice_event(message, failed=True),)
            case _GeminiResult() as event:
                return self._handle_result(event)

        return ()

    def build_report(self, finished: FinishedRun) -> AgentReport:
        # It reports retries on stderr only.
        retries = _RETRY_LINE.findall(finished.stderr[-16_000:])
        if retries and not self._state.completed:
            self._state.retry_error = ReportedError(retries[-1])
        return super().build_report(finished)

    def _handle_result(self, result: _GeminiResult) -> Iterator[AgentEvent]:
        """Yield usage and end of the run; a detected loop counts as a failure."""
        if result.stats is not None:
            stats = result.stats
            self._state.usage = Usage(
                input_tokens=to_token_count(stats.input_tokens),
                cached_input_tokens=to_token_count(stats.cached),
                output_tokens=to_token_count(stats.output_tokens),
            )
            yield AgentEvent(EventKind.USAGE, usage=self._state.usage)

        self._state.mark_progress()
        # It reports a detected loop as success.
        looped = self._last_error.startswith(_LOOP_MESSAGE)
        self._state.completed = result.status == "success" and result.error is None and not looped

        if not self._state.completed:
            message = result.error.get("message") if isinstance(result.error, dict) else None
            if not isinstance(message, str) or not message:
                message = self._last_error or "its result is an error"

            self._state.error = ReportedError(message)

        yield AgentEvent(EventKind.END, failed=not self._state.completed)
