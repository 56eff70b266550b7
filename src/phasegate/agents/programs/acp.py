"""`acp`: any agent that speaks the Agent Client Protocol; it asks for permission before each write.

`acp.program` runs the session inside the sandbox. This module builds its config and parses its
output.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from phasegate.agents.acp.events import (
    AcpEndReason,
    AcpEvent,
    AcpFileChange,
    AcpNotice,
    AcpSessionConfig,
    AcpSessionEnd,
    AcpText,
    AcpToolRun,
    AcpUnreadableUpdate,
    AcpUsage,
)
from phasegate.agents.port import (
    AgentEvent,
    AgentReport,
    AgentTask,
    Ending,
    EventKind,
    FinishedRun,
    JobHandle,
    Launch,
    OutputParser,
    Usage,
    get_harness,
)
from phasegate.agents.program_launch import build_launch
from phasegate.agents.programs.command import build_run_env, resolve_repository_files
from phasegate.agents.stream.api_error import ReportedError, interpret_error
from phasegate.agents.stream.plain_output import build_plain_report, describe_early_stop
from phasegate.agents.stream.state import FirstOutputTimer
from phasegate.agents.stream.tool_use import make_notice_event
from phasegate.config.acp_registry import resolve_harness_row
from phasegate.core.agents.harnesses import ACP, HarnessRow
from phasegate.core.answer.parse import find_blockers
from phasegate.errors import ConfigError
from phasegate.sandbox.environment import filter_search_path
from phasegate.typed import read_json

PROGRAM = (sys.executable, "-P", "-m", "phasegate.agents.acp.program", "--")
# For each answer until the session is open; slow agents need ten seconds.
HANDSHAKE_TIMEOUT_S = 120.0
CANCEL_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 5.0
MAX_ANSWER_CHARS = 8_000_000
MAX_BLOCKERS = 20
_REASONS = {
    AcpEndReason.MAX_TOKENS: "it reached the token limit of its model",
    AcpEndReason.MAX_TURN_REQUESTS: "it reached its limit of model requests in one turn",
    AcpEndReason.REFUSAL: "it refused to continue",
    AcpEndReason.CANCELLED: "it was stopped",
}
_REMEDIES = {
    AcpEndReason.SIGN_IN: (
        "sign in with the agent's own program, or add the name of its API key variable to "
        "the agent's `env`"
    ),
    AcpEndReason.NOT_STARTED: (
        "install the agent, or fix `command` in phasegate.toml; see `phasegate agents`"
    ),
    AcpEndReason.SILENT: (
        "run its command in a terminal to see what it is waiting for; "
        "it must speak ACP on its standard streams"
    ),
    AcpEndReason.BROKEN: (
        "check that its command starts it as an ACP agent, for instance with `--acp`, "
        "and check its version"
    ),
    AcpEndReason.MAX_TOKENS: "make the work package smaller",
    AcpEndReason.MAX_TURN_REQUESTS: (
        "make the work package smaller, or raise the limit in the agent's own settings"
    ),
}


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    """Build the launch of Phasegate's ACP client, which starts the configured agent.

    Raises ConfigError if no command is configured.
    """
    configured = task.agent.command or row.command

    if not configured:
        raise ConfigError(
            f"agent {task.agent.name!r} has no command",
            f'set `command = ["opencode", "acp"]` or the like in [agents.{task.agent.name}]',
        )

    command = _resolve_program(resolve_repository_files(task.repository, configured))
    # A program that has its own harness needs the same variables, settings and sign-in here, and
    # the same protection from the settings of the repository.
    known = resolve_harness_row(ACP, command)
    agent_launch = _build_agent_launch(task, known)

    return replace(
        agent_launch,
        argv=(*PROGRAM, *command),
        stdin=msgspec.json.encode(_build_session_config(task)),
        env={**agent_launch.env, **dict(known.acp_env if known else ())},
    )


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return AcpOutputParser(FirstOutputTimer(job, task.agent.first_output_timeout_s))


def _build_agent_launch(task: AgentTask, known: HarnessRow | None) -> Launch:
    """Build the launch of an agent; refuse one that would run the repository's programs."""
    if known is None:
        return _build_default_launch(task)

    if known.driver != ACP:
        # The session offers the MCP tools.
        agent = replace(task.agent, mcp_tools=False)
        return get_harness(known.kind).launch(replace(task, agent=agent))

    for name in known.repository_programs:
        if (task.checkout / name).exists():
            raise ConfigError(
                f"{known.program} would run this repository's programs in {name}",
                "use another agent here, or remove them from the base branch",
            )

    return build_launch(task, known, ())


def _build_default_launch(task: AgentTask) -> Launch:
    """Build the launch of an unknown program: network access and the configured variables."""
    return Launch(
        argv=(), stdin=b"", network=True, env=build_run_env(task), pass_env=task.agent.env
    )


def _resolve_program(command: tuple[str, ...]) -> tuple[str, ...]:
    """Replace the program with its full path, if it is on PATH.

    The sandbox makes the folders of the named files readable.
    """
    program, *arguments = command
    search_path = filter_search_path(os.environ.get("PATH", ""))
    return (shutil.which(program, path=search_path) or program, *arguments)


def _build_session_config(task: AgentTask) -> AcpSessionConfig:
    """Build the configuration that is passed to the ACP program of a job."""
    scope = task.scope
    return AcpSessionConfig(
        checkout=str(task.checkout),
        prompt=str(task.prompt_xml),
        may_run=task.sandboxed,
        handshake_s=HANDSHAKE_TIMEOUT_S,
        cancel_s=CANCEL_TIMEOUT_S,
        close_s=CLOSE_TIMEOUT_S,
        readable=(str(task.prompt_xml), task.envelope.prompt_path, *task.envelope.context_paths),
        entries=scope.entries,
        set_aside=tuple(sorted(scope.set_aside)),
        lock_files=tuple(sorted(scope.lock_files)),
        litter=scope.litter,
        has_tools=task.has_mcp_tools,
    )


class AcpOutputParser:
    """Parses the output of the ACP client program. The agent's last message is the answer."""

    def __init__(self, first_output_timer: FirstOutputTimer) -> None:
        self._first_output_timer = first_output_timer
        self._parts: list[str] = []
        self._length = 0
        self._earlier_blockers: list[str] = []
        self._usage = Usage()
        self._unreadable_updates = 0
        self._lost_text = False
        self._end: AcpSessionEnd | None = None

    def on_job_start(self) -> None:
        self._first_output_timer.start()

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        try:
            line = read_json(text, AcpEvent)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return ()

        if not isinstance(line, AcpNotice | AcpUnreadableUpdate):
            self._first_output_timer.mark_output()
        return (self._convert_line(line),)

    def _convert_line(self, line: AcpEvent) -> AgentEvent:
        """Convert a line of the ACP program to an agent event, if it is one."""
        match line:
            case AcpText():
                return self._add_text(line)
            case AcpUsage():
                return self._update_usage(line)
            case AcpFileChange():
                return AgentEvent(
                    kind=EventKind.FILE, path=line.path, removed=line.removed, failed=line.failed
                )
            case AcpToolRun():
                kind = EventKind.COMMAND if line.is_command else EventKind.TOOL
                return AgentEvent(kind=kind, text=line.title, failed=line.failed)
            case AcpNotice():
                return AgentEvent(kind=EventKind.NOTICE, text=line.text, path=line.path)
            case AcpUnreadableUpdate():
                self._unreadable_updates += 1
                self._lost_text = self._lost_text or line.is_text
                return make_notice_event("an update could not be read", failed=True)
            case AcpSessionEnd():
                self._end = line
                return AgentEvent(
                    kind=EventKind.END,
                    text=line.reason or line.how,
                    failed=line.how is not AcpEndReason.END_TURN,
                )

    def _add_text(self, line: AcpText) -> AgentEvent:
        if line.begins:
            found = find_blockers("".join(self._parts))
            self._earlier_blockers = [*self._earlier_blockers, *found][:MAX_BLOCKERS]
            self._parts = []
            self._length = 0

        self._length += len(line.text)
        if self._length <= MAX_ANSWER_CHARS:
            self._parts.append(line.text)
        return AgentEvent(kind=EventKind.TEXT, text=line.text, is_partial=True)

    def _update_usage(self, line: AcpUsage) -> AgentEvent:
        """Update the usage.

        Token counts arrive at the end of a turn, the cost may arrive earlier.
        """
        previous = self._usage
        self._usage = Usage(
            input_tokens=max(line.input_tokens, previous.input_tokens),
            cached_input_tokens=max(line.cached_input_tokens, previous.cached_input_tokens),
            output_tokens=max(line.output_tokens, previous.output_tokens),
            cost_usd=previous.cost_usd if line.cost_usd is None else line.cost_usd,
        )
        return AgentEvent(EventKind.USAGE, usage=self._usage)

    def build_report(self, finished: FinishedRun) -> AgentReport:
        """Report how the session ended, the last message as the answer, and the usage.

        The report also says whether text was lost, how many updates could not be read, and which
        blockers earlier messages named.
        """
        self._first_output_timer.cancel()
        if self._first_output_timer.is_silent(finished):
            report = self._first_output_timer.build_report(finished)
        else:
            report = _build_report(self._end, finished)

        remark = ""
        if self._unreadable_updates == 1:
            remark = "1 update could not be read"
        elif self._unreadable_updates:
            remark = f"{self._unreadable_updates} updates could not be read"

        too_long = self._length > MAX_ANSWER_CHARS or finished.skipped_lines > 0
        return replace(
            report,
            answer="".join(self._parts),
            usage=self._usage,
            truncated=too_long or self._lost_text,
            remark=remark,
            blockers=tuple(self._earlier_blockers),
        )


def _build_report(end: AcpSessionEnd | None, finished: FinishedRun) -> AgentReport:
    """Interpret the end of the session.

    After a timeout, or if the last line is missing, our program did not see the end.
    """
    plain = build_plain_report(finished)

    if finished.exceeded_limit or finished.timed_out or finished.signal is not None or end is None:
        if plain.ending is Ending.COMPLETED:
            return _make_failed_report("it ended without a stop reason")
        return plain

    if end.how is AcpEndReason.END_TURN:
        return plain
    if finished.sigterm_sent:
        return _make_failed_report(describe_early_stop(finished))

    return _build_failure_report(end, finished)


# JSON-RPC's name for every error of a peer (-32603): it says nothing about the cause.
_RPC_INTERNAL_ERROR = "Internal error: "


def _build_failure_report(end: AcpSessionEnd, finished: FinishedRun) -> AgentReport:
    """Build the report of a failed session, with its remedy."""
    reason = end.reason or _REASONS.get(end.how, "it failed")
    remedy = _REMEDIES.get(end.how, "")
    if end.how in (AcpEndReason.SIGN_IN, AcpEndReason.NOT_STARTED):
        return AgentReport(answer="", ending=Ending.NOT_RUNNABLE, reason=reason, remedy=remedy)
    if end.how is AcpEndReason.EXITED:
        return _build_exit_report(end, finished)

    # The text of the error tells whether a retry may help.
    if end.how is AcpEndReason.ERROR:
        error = ReportedError(reason.removeprefix(_RPC_INTERNAL_ERROR))
        meaning = interpret_error(error, _REMEDIES[AcpEndReason.SIGN_IN], finished.ended_at_s)
        return AgentReport(
            answer="",
            ending=meaning.ending,
            reason=reason,
            retry_at_s=meaning.retry_at_s,
            remedy=meaning.remedy,
        )

    return replace(_make_failed_report(reason), remedy=remedy)


def _build_exit_report(end: AcpSessionEnd, finished: FinishedRun) -> AgentReport:
    """Build the report of an agent that exited, from its exit status and stderr."""
    status = end.agent_status
    if status == 0:
        return _make_failed_report(f"{end.reason}, with exit status 0")

    if status is not None and status < 0:
        agent_run = replace(finished, exit_status=None, signal=-status)
    else:
        agent_run = replace(finished, exit_status=status, signal=None)

    report = build_plain_report(agent_run)
    return replace(report, reason=f"{end.reason}: {report.reason}")


def _make_failed_report(reason: str) -> AgentReport:
    return AgentReport(answer="", ending=Ending.FAILED, reason=reason)
