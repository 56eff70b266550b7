"""`qwen`: Qwen Code, headless."""

from __future__ import annotations

import re

from phasegate.agents.port import AgentReport, AgentTask, FinishedRun, Launch, StreamReading, Talk
from phasegate.agents.program_launch import AT, launch_of, model_option, settings_file
from phasegate.agents.stream.api_error import Trouble
from phasegate.agents.stream.claude import ClaudeStream
from phasegate.agents.stream.state import StreamState
from phasegate.core.agents.harnesses import HarnessRow

# `--bare` alone keeps the project's `.env`, `.qwen/.env` and `.qwen/settings.json` out.
_ARGUMENTS = ("-o", "stream-json", "--bare", "--chat-recording", "false")
_SETTINGS = {
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}
_API_ERROR = re.compile(r"\[API Error: [^\n]{0,300}")


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    account = () if "--auth-type" in task.agent.command else ("--auth-type", "openai")
    permissions = ("--yolo",) if task.caged else ("--approval-mode", "auto-edit")
    return launch_of(
        task,
        row,
        (*_ARGUMENTS, *account, *model_option(task, "-m"), *permissions),
        env={"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"},
        home_files={".qwen/settings.json": settings_file(_SETTINGS)},
        # It reads what is named behind an `@`, and puts blanks before each of them, those of a diff too.
        stdin=task.prompt_xml.read_bytes().replace(b"@", AT),
    )


def reading(row: HarnessRow, task: AgentTask, talk: Talk) -> StreamReading:
    return _QwenReading(StreamState(row, task, talk), task.checkout, cache_is_counted=True)


class _QwenReading(ClaudeStream):
    unusable = (52,)

    def report(self, finished: FinishedRun) -> AgentReport:
        if self._state.retrying is not None:
            self._state.retrying = self._awaited(self._state.retrying, finished)
        return super().report(finished)

    def _awaited(self, trouble: Trouble, finished: FinishedRun) -> Trouble:
        """What it waits for stands on stderr alone; how long, in the stream."""
        errors = _API_ERROR.findall(finished.stderr[-16_000:])
        retry_at_s = None if self.wait_s is None else finished.ended_at_s + self.wait_s
        return Trouble(errors[-1] if errors else trouble.message, retry_at_s=retry_at_s)
