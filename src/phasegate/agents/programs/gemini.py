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
    Launch,
    StreamReading,
    Talk,
    Usage,
)
from phasegate.agents.program_launch import (
    LONGEST_TOOL_S,
    ROUTES,
    TOOLS_SERVER,
    launch_of,
    model_option,
    settings_file,
    without_mentions,
)
from phasegate.agents.stream.api_error import Trouble
from phasegate.agents.stream.line import LineReader, count
from phasegate.agents.stream.state import ReadsStream, StreamState
from phasegate.agents.stream.tool_use import ToolInput, notice, tool_result, tool_use
from phasegate.core.agents.harnesses import HarnessRow

# It works in trusted folders only, and there it takes unset variables from `.gemini/.env`: so those that lead somewhere
# are set, if only to nothing.
_FILLED = (
    *ROUTES,
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA", "GOOGLE_CLOUD_PROJECT"),
    *("GOOGLE_CLOUD_LOCATION", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "CODE_ASSIST_ENDPOINT"),
    *("CODE_ASSIST_API_VERSION", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_ACCESS_TOKEN", "CLOUDSDK_CONFIG"),
    *("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "GOOGLE_CLOUD_QUOTA_PROJECT", "GCE_METADATA_HOST", "GCE_METADATA_IP"),
    *("GEMINI_CLI_CUSTOM_HEADERS", "GEMINI_SANDBOX", "GEMINI_SANDBOX_PROXY_COMMAND", "GEMINI_SYSTEM_MD"),
    *(
        "GEMINI_TELEMETRY_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "grpc_proxy",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    ),
    *("NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "CLOUD_SHELL", "GEMINI_CLI_HOME", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"),
)
_ENV = {
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "GEMINI_CLI_NO_RELAUNCH": "true",  # one process: signals to it arrive
    "GEMINI_TELEMETRY_ENABLED": "false",
    "NODE_TLS_REJECT_UNAUTHORIZED": "1",
}
# As settings of the system: those of the project go before those of a person, and may name commands to be run.
_SETTINGS_FILE = ".gemini/system.json"
_SETTINGS = {
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 3},
    "advanced": {"ignoreLocalEnv": True},
    "context": {"fileFiltering": {"enableRecursiveFileSearch": False}},  # for names behind an `@` in a prompt
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "hooksConfig": {"enabled": False},
    "tools": {"discoveryCommand": "", "callCommand": "", "sandbox": False},
    "mcp": {"serverCommand": ""},
}
_SERVER = {
    "command": TOOLS_SERVER[0],
    "args": [*TOOLS_SERVER[1:]],
    "timeout": LONGEST_TOOL_S * 1_000,
    "trust": True,
}
_TRY = re.compile(r"\bAttempt [0-9]+ failed with status [0-9]{3}\b")
_LOOP = "Loop detected"


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    permissions = "yolo" if task.caged else "auto_edit"
    # Only a server of this name may run: ours or none, and a project cannot guess it and have one.
    name = f"phasegate-{task.envelope.job_id}"
    servers = ("--allowed-mcp-server-names", name)
    tools = {"mcpServers": {name: _SERVER}} if task.offers_tools else {}
    arguments = ("-o", "stream-json", *servers, "--approval-mode", permissions, *model_option(task, "-m"))
    plain = launch_of(
        task,
        row,
        arguments,
        env=_ENV,
        home_files={_SETTINGS_FILE: settings_file({**_SETTINGS, **_sign_in(os.environ), **tools})},
        stdin=without_mentions(task),
    )
    return msgspec.structs.replace(
        plain,
        default_env=dict.fromkeys(_FILLED, ""),
        home_paths={"GEMINI_CLI_SYSTEM_SETTINGS_PATH": _SETTINGS_FILE},
    )


def reading(row: HarnessRow, task: AgentTask, talk: Talk) -> StreamReading:
    return _GeminiReading(StreamState(row, task, talk), task.checkout)


def _sign_in(environment: Mapping[str, str]) -> dict[str, object]:
    """Which of its sign-ins to use. Left to itself it refuses a key together with a base URL, and knows no OAuth."""
    if environment.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        kind = "vertex-ai"
    elif environment.get("GEMINI_API_KEY"):
        kind = "gemini-api-key"
    else:
        kind = "vertex-ai" if environment.get("GOOGLE_API_KEY") else "oauth-personal"
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
    error: object = None  # whatever it is: it did not go well
    stats: _GeminiStats | None = None


_Line = _GeminiMessage | _GeminiToolUse | _GeminiToolResult | _GeminiError | _GeminiResult
_LINES: LineReader[_Line] = LineReader(_Line, speaking=("message",))


class _GeminiReading(ReadsStream):
    unusable = (41, 44, 52, 55)  # no sign-in, no sandbox, wrong settings, a folder that it does not trust

    def __init__(self, state: StreamState, checkout: Path) -> None:
        super().__init__(state, checkout)
        self._last_error = ""

    def line(self, text: str) -> Iterable[AgentEvent]:
        match self._state.read(_LINES, text):
            case None:
                return ()  # of another kind, or no line of the protocol
            case _GeminiMessage("assistant", content):
                self._state.say(content)
                return (AgentEvent(EventKind.TEXT, content, is_piece=True),)
            case _GeminiMessage(role) if role != "user":
                self._state.lose_text()
                return ()
            case _GeminiToolUse(name, parameters):
                self._state.get_on()
                self._state.end_message()
                return (tool_use(name, parameters, self._checkout),)
            case _GeminiToolResult("error", error):
                return (notice(error.message if error else "a tool failed", failed=True),)
            case _GeminiToolResult(_, _, output):
                return tool_result(output)
            case _GeminiError(message):
                self._last_error = message
                return (notice(message, failed=True),)
            case _GeminiResult() as event:
                return self._end(event)
        return ()

    def report(self, finished: FinishedRun) -> AgentReport:
        if not self._state.completed and (tries := _TRY.findall(finished.stderr[-16_000:])):
            self._state.retrying = Trouble(tries[-1])  # its retries are told on stderr alone
        return super().report(finished)

    def _end(self, result: _GeminiResult) -> Iterator[AgentEvent]:
        if result.stats is not None:
            stats = result.stats
            self._state.usage = Usage(count(stats.input_tokens), count(stats.cached), count(stats.output_tokens))
            yield AgentEvent(EventKind.USAGE, usage=self._state.usage)
        self._state.get_on()
        looped = self._last_error.startswith(_LOOP)  # it calls that a success
        self._state.completed = result.status == "success" and result.error is None and not looped
        if not self._state.completed:
            error = result.error.get("message") if isinstance(result.error, dict) else None
            said = error if isinstance(error, str) else ""
            self._state.trouble = Trouble(said or self._last_error or "its result is an error")
        yield AgentEvent(EventKind.END, failed=not self._state.completed)
