"""`claude_code`: Claude Code, headless."""

from __future__ import annotations

from phasegate.agents.port import AgentTask, JobHandle, Launch, OutputParser
from phasegate.agents.program_launch import (
    MCP_SERVER_COMMAND,
    TOOL_TIMEOUT_S,
    build_launch,
    encode_settings,
    escape_mentions,
    model_option,
)
from phasegate.agents.stream.claude import ClaudeStreamParser
from phasegate.agents.stream.state import StreamState
from phasegate.core.agents.harnesses import HarnessRow

# Only `user` settings: project settings could send the key to another host (`env`) or run commands
# (`hooks`).
_ARGUMENTS = (
    *("-p", "--output-format", "stream-json", "--verbose"),
    *("--setting-sources", "user", "--strict-mcp-config", "--no-session-persistence"),
)
_BYPASS_PERMISSIONS = ("--dangerously-skip-permissions",)
_RESTRICTED_PERMISSIONS = (
    *("--permission-mode", "acceptEdits"),
    *("--allowedTools", "Bash(git add:*),Bash(git commit:*),mcp__phasegate"),
)
_MCP_SERVER = {
    "command": MCP_SERVER_COMMAND[0],
    "args": [*MCP_SERVER_COMMAND[1:]],
    "alwaysLoad": True,
}
_MCP_ARGUMENTS = (
    "--mcp-config",
    encode_settings({"mcpServers": {"phasegate": _MCP_SERVER}}).decode(),
)
_ENV = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "MCP_TOOL_TIMEOUT": str(TOOL_TIMEOUT_S * 1_000),
    # The default of ten retries takes three minutes, even for a wrong key.
    "CLAUDE_CODE_MAX_RETRIES": "3",
}


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    permissions = _BYPASS_PERMISSIONS if task.sandboxed else _RESTRICTED_PERMISSIONS
    env = _ENV
    if task.sandboxed:
        # Without this variable it refuses to bypass permissions as root.
        env = {**_ENV, "IS_SANDBOX": "1"}

    tools = _MCP_ARGUMENTS if task.has_mcp_tools else ()
    arguments = (*_ARGUMENTS, *tools, *model_option(task, "--model"), *permissions)

    return build_launch(task, row, arguments, env=env, stdin=escape_mentions(task))


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return ClaudeStreamParser(StreamState(row, task, job), task.checkout)
