"""`claude_code`: Claude Code, headless."""

from __future__ import annotations

from phasegate.agents.port import AgentTask, Launch, StreamReading, Talk
from phasegate.agents.program_launch import (
    LONGEST_TOOL_S,
    TOOLS_SERVER,
    launch_of,
    model_option,
    settings_file,
    without_mentions,
)
from phasegate.agents.stream.claude import ClaudeStream
from phasegate.agents.stream.state import StreamState
from phasegate.core.agents.harnesses import HarnessRow

# `user` alone: settings of the project could send the key elsewhere (`env`), or run commands of their own (`hooks`).
_ARGUMENTS = (
    *("-p", "--output-format", "stream-json", "--verbose"),
    *("--setting-sources", "user", "--strict-mcp-config", "--no-session-persistence"),
)
_FREE = ("--dangerously-skip-permissions",)
_EDITS_AND_COMMITS = (
    *("--permission-mode", "acceptEdits"),
    *("--allowedTools", "Bash(git add:*),Bash(git commit:*),mcp__phasegate"),
)
_SERVER = {"command": TOOLS_SERVER[0], "args": [*TOOLS_SERVER[1:]], "alwaysLoad": True}
_TOOLS = ("--mcp-config", settings_file({"mcpServers": {"phasegate": _SERVER}}).decode())
_ENV = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "MCP_TOOL_TIMEOUT": str(LONGEST_TOOL_S * 1_000),
    "CLAUDE_CODE_MAX_RETRIES": "3",  # ten take three minutes, for a wrong key too
}


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    # The cage bounds what it can do; it does not take root for an answer unless it is told of a sandbox.
    permissions = _FREE if task.caged else _EDITS_AND_COMMITS
    env = {**_ENV, "IS_SANDBOX": "1"} if task.caged else _ENV
    tools = _TOOLS if task.offers_tools else ()
    arguments = (*_ARGUMENTS, *tools, *model_option(task, "--model"), *permissions)
    return launch_of(task, row, arguments, env=env, stdin=without_mentions(task))


def reading(row: HarnessRow, task: AgentTask, talk: Talk) -> StreamReading:
    return ClaudeStream(StreamState(row, task, talk), task.checkout)
