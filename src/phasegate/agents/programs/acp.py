"""`acp`: any agent that speaks the Agent Client Protocol, asked before each write.

The conversation is held by `acp_program` inside the cage; here is its order, and what its lines
mean.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import msgspec

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
# Until it has a session: slow ones need ten seconds
HANDSHAKE_TIMEOUT_S = 120.0
CANCEL_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 5.0
# Characters
MAX_ANSWER_CHARS = 8_000_000
MAX_BLOCKERS = 20
_REASONS = {
    AcpEndReason.MAX_TOKENS: "it reached the limit of its model's tokens",
    AcpEndReason.MAX_TURN_REQUESTS: "it made as many requests to its model as it may in one turn",
    AcpEndReason.REFUSAL: "it refused to go on",
    AcpEndReason.CANCELLED: "it was told to stop",
}
_REMEDIES = {
    AcpEndReason.SIGN_IN: "sign in with the agent's own program, or name the variable of its key in `env` of the agent",
    AcpEndReason.NOT_STARTED: "install the agent, or fix `command` in phasegate.toml; see `phasegate agents`",
    AcpEndReason.SILENT: "start its command by hand to see what it waits for; it must speak ACP on its standard streams",
    AcpEndReason.BROKEN: "check that its command starts it as an ACP agent, for instance with `--acp`, and see its version",
    AcpEndReason.MAX_TOKENS: "make the work package smaller",
    AcpEndReason.MAX_TURN_REQUESTS: "make the work package smaller, or raise the limit in the agent's own settings",
}


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    """Starts our program, which starts the configured agent and speaks with it."""
    given = task.agent.command or row.command

    if not given:
        raise ConfigError(
            f"agent {task.agent.name!r} has no command",
            f'set `command = ["opencode", "acp"]` or the like in [agents.{task.agent.name}]',
        )

    command = _resolve_program(resolve_repository_files(task.repository, given))
    # A program with a harness of its own has its variables, settings and sign-in here too: what
    # keeps the settings of a repository from it is the same.
    known = resolve_harness_row(ACP, command)
    plain = _build_agent_launch(task, known)

    return msgspec.structs.replace(
        plain,
        argv=(*PROGRAM, *command),
        stdin=msgspec.json.encode(_build_session_config(task)),
        env={**plain.env, **dict(known.acp_env if known else ())},
    )


def reading(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return AcpOutputParser(FirstOutputTimer(job, task.agent.first_output_timeout_s))


def _build_agent_launch(task: AgentTask, known: HarnessRow | None) -> Launch:
    if known is None:
        return _build_default_launch(task)

    if known.driver != ACP:
        # The tools come with the session
        by_session = msgspec.structs.replace(task.agent, mcp_tools=False)
        return get_harness(known.kind).launch(msgspec.structs.replace(task, agent=by_session))

    if found := next(
        (name for name in known.repository_programs if (task.checkout / name).exists()), None
    ):
        raise ConfigError(
            f"{known.program} would run the programs of this repository in {found}",
            "use another agent here, or remove them from the branch that the work starts from",
        )

    return build_launch(task, known, ())


def _build_default_launch(task: AgentTask) -> Launch:
    """Of a program that we know nothing about.

    It has to reach its model, with what the person passes on.
    """
    return Launch(
        argv=(), stdin=b"", network=True, env=build_run_env(task), pass_env=task.agent.env
    )


def _resolve_program(command: tuple[str, ...]) -> tuple[str, ...]:
    """With the program's whole path where it is on PATH.

    The cage shows what lies around files that are named.
    """
    program, *arguments = command
    return (
        shutil.which(program, path=filter_search_path(os.environ.get("PATH", ""))) or program,
        *arguments,
    )


def _build_session_config(task: AgentTask) -> AcpSessionConfig:
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
    """The lines of our program.

    The answer is the agent's last message; what it said before it is shown only.
    """

    def __init__(self, first_output_timer: FirstOutputTimer) -> None:
        self._first_output_timer = first_output_timer
        self._parts: list[str] = []
        self._length = 0
        self._blockers: list[str] = []
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
            self._first_output_timer.cancel()
        return (self._convert_line(line),)

    def _convert_line(self, line: AcpEvent) -> AgentEvent:
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
                if line.is_command:
                    kind = EventKind.COMMAND
                else:
                    kind = EventKind.TOOL

                return AgentEvent(kind=kind, text=line.title, failed=line.failed)
            case AcpNotice():
                return AgentEvent(kind=EventKind.NOTICE, text=line.text, path=line.path)
            case AcpUnreadableUpdate():
                self._unreadable_updates += 1
                self._lost_text = self._lost_text or line.is_text
                return make_notice_event("an update of it could not be read", failed=True)
            case AcpSessionEnd():
                self._end = line
                return AgentEvent(
                    kind=EventKind.END,
                    text=line.reason or line.how,
                    failed=line.how is not AcpEndReason.END_TURN,
                )

    def _add_text(self, line: AcpText) -> AgentEvent:
        if line.begins:
            self._blockers = [*self._blockers, *find_blockers("".join(self._parts))][:MAX_BLOCKERS]
            self._parts = []
            self._length = 0

        self._length += len(line.text)
        if self._length <= MAX_ANSWER_CHARS:
            self._parts.append(line.text)
        return AgentEvent(kind=EventKind.TEXT, text=line.text, is_partial=True)

    def _update_usage(self, line: AcpUsage) -> AgentEvent:
        """Tokens come with the end of the turn, the cost before it and then again."""
        before = self._usage
        self._usage = Usage(
            max(line.input_tokens, before.input_tokens),
            max(line.cached_input_tokens, before.cached_input_tokens),
            max(line.output_tokens, before.output_tokens),
            before.cost_usd if line.cost_usd is None else line.cost_usd,
        )
        return AgentEvent(EventKind.USAGE, usage=self._usage)

    def build_report(self, finished: FinishedRun) -> AgentReport:
        self._first_output_timer.cancel()
        if self._first_output_timer.expired:
            report = self._first_output_timer.build_report()
        else:
            report = _build_report(self._end, finished)

        return msgspec.structs.replace(
            report,
            answer="".join(self._parts),
            usage=self._usage,
            truncated=self._length > MAX_ANSWER_CHARS
            or finished.skipped_lines > 0
            or self._lost_text,
            remark=f"{self._unreadable_updates} update{'s' * (self._unreadable_updates > 1)} could not be read"
            if self._unreadable_updates
            else "",
            blockers=tuple(self._blockers),
        )


def _build_report(ended: AcpSessionEnd | None, finished: FinishedRun) -> AgentReport:
    """What the end means.

    Without its last line, and when time ran out, our program did not see an end.
    """
    plain = build_plain_report(finished)

    if (
        finished.exceeded_limit
        or finished.timed_out
        or finished.signal is not None
        or ended is None
    ):
        lost = plain.ending is Ending.COMPLETED
        if lost:
            return _make_failed_report("it ended without a word about how")
        return plain

    if ended.how is AcpEndReason.END_TURN:
        return plain
    if finished.sigterm_sent:
        return _make_failed_report(describe_early_stop(finished))

    return _build_failure_report(ended, finished)


# The name that JSON-RPC gives to every error of a peer (-32603): it says nothing about the cause.
_RPC_INTERNAL_ERROR = "Internal error: "


def _build_failure_report(ended: AcpSessionEnd, finished: FinishedRun) -> AgentReport:
    reason = ended.reason or _REASONS.get(ended.how, "it failed")
    remedy = _REMEDIES.get(ended.how, "")
    if ended.how in (AcpEndReason.SIGN_IN, AcpEndReason.NOT_STARTED):
        return AgentReport(answer="", ending=Ending.NOT_RUNNABLE, reason=reason, remedy=remedy)
    if ended.how is AcpEndReason.EXITED:
        return _build_exit_report(ended, finished)

    # The text of the error says whether another try may help
    if ended.how is AcpEndReason.ERROR:
        said = reason.removeprefix(_RPC_INTERNAL_ERROR)
        meaning = interpret_error(
            ReportedError(said), _REMEDIES[AcpEndReason.SIGN_IN], finished.ended_at_s
        )
        return AgentReport(
            answer="",
            ending=meaning.ending,
            reason=reason,
            retry_at_s=meaning.retry_at_s,
            remedy=meaning.remedy,
        )

    return msgspec.structs.replace(_make_failed_report(reason), remedy=remedy)


def _build_exit_report(ended: AcpSessionEnd, finished: FinishedRun) -> AgentReport:
    """An agent that exited is judged by its own exit status and what it wrote to stderr."""
    status = ended.agent_status
    if status == 0:
        return _make_failed_report(f"{ended.reason}, with exit status 0")

    if status is not None and status < 0:
        signal = -status
    else:
        signal = None

    own = msgspec.structs.replace(finished, exit_status=None if signal else status, signal=signal)
    report = build_plain_report(own)

    return msgspec.structs.replace(report, reason=f"{ended.reason}: {report.reason}")


def _make_failed_report(reason: str) -> AgentReport:
    return AgentReport(answer="", ending=Ending.FAILED, reason=reason)
