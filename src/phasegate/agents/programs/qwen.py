"""`qwen`: Qwen Code, headless."""

from __future__ import annotations

import re

from phasegate.agents.port import (
    AgentReport,
    AgentTask,
    FinishedRun,
    JobHandle,
    Launch,
    OutputParser,
)
from phasegate.agents.program_launch import ESCAPED_AT, build_launch, encode_settings, model_option
from phasegate.agents.stream.api_error import ReportedError
from phasegate.agents.stream.claude import ClaudeStreamParser
from phasegate.agents.stream.state import StreamState
from phasegate.core.agents.harnesses import HarnessRow

# Only `--bare` makes it ignore the project's `.env`, `.qwen/.env` and `.qwen/settings.json`.
_ARGUMENTS = ("-o", "stream-json", "--bare", "--chat-recording", "false")
_SETTINGS = {
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}
_API_ERROR = re.compile(r"\[API Error: [^\n]{0,300}")


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    """Build the command line, settings and environment of Qwen Code."""
    account = () if "--auth-type" in task.agent.command else ("--auth-type", "openai")
    permissions = ("--yolo",) if task.sandboxed else ("--approval-mode", "auto-edit")
    return build_launch(
        task,
        row,
        (*_ARGUMENTS, *account, *model_option(task, "-m"), *permissions),
        env={"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"},
        home_files={".qwen/settings.json": encode_settings(_SETTINGS)},
        # It reads the file after each `@`, and inserts blanks before every `@`, even in a diff.
        stdin=task.prompt_xml.read_bytes().replace(b"@", ESCAPED_AT),
    )


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return _QwenParser(StreamState(row, task, job), task.checkout, input_includes_cache=True)


class _QwenParser(ClaudeStreamParser):
    config_error_statuses = (52,)

    def build_report(self, finished: FinishedRun) -> AgentReport:
        if self._state.retry_error is not None:
            self._state.retry_error = self._add_retry_details(self._state.retry_error, finished)
        return super().build_report(finished)

    def _add_retry_details(self, error: ReportedError, finished: FinishedRun) -> ReportedError:
        """Add the cause of a retry, reported on stderr only, and the wait from the stream."""
        errors = _API_ERROR.findall(finished.stderr[-16_000:])
        message = errors[-1] if errors else error.message
        if self.announced_wait_s is None:
            return ReportedError(message)

        return ReportedError(message, retry_at_s=finished.ended_at_s + self.announced_wait_s)
