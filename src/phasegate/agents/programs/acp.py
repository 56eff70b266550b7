"""`acp`: any agent that speaks the Agent Client Protocol, asked before each write.

The conversation is held by `acp_program` inside the cage; here is its order, and what its lines mean.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import msgspec

from phasegate.agents.acp.events import AcpEnded, Changed, How, Line, Noted, Order, Said, ToolRan, Unread, Used
from phasegate.agents.port import (
    AgentEvent,
    AgentReport,
    AgentTask,
    Ending,
    EventKind,
    FinishedRun,
    Launch,
    StreamReading,
    Talk,
    Usage,
    harness_of,
)
from phasegate.agents.program_launch import launch_of
from phasegate.agents.programs.command import own_files, run_variables
from phasegate.agents.stream.api_error import Trouble, meaning_of
from phasegate.agents.stream.plain_output import cut_short, report_of_plain_program
from phasegate.agents.stream.state import FirstSign
from phasegate.agents.stream.tool_use import notice
from phasegate.config.acp_registry import row_of
from phasegate.core.agents.harnesses import ACP, HarnessRow
from phasegate.core.answer.parse import blockers_in
from phasegate.errors import ConfigError
from phasegate.sandbox.environment import safe_path
from phasegate.typed import read_json

PROGRAM = (sys.executable, "-P", "-m", "phasegate.agents.acp.program", "--")
HANDSHAKE_S = 120.0  # until it has a session: slow ones need ten seconds
CANCEL_S, CLOSE_S = 20.0, 5.0
MOST_ANSWER = 8_000_000  # characters
MOST_BLOCKERS = 20
_REASONS = {
    How.MAX_TOKENS: "it reached the limit of its model's tokens",
    How.MAX_TURN_REQUESTS: "it made as many requests to its model as it may in one turn",
    How.REFUSAL: "it refused to go on",
    How.CANCELLED: "it was told to stop",
}
_REMEDIES = {
    How.SIGN_IN: "sign in with the agent's own program, or name the variable of its key in `env` of the agent",
    How.NOT_STARTED: "install the agent, or fix `command` in phasegate.toml; see `phasegate agents`",
    How.SILENT: "start its command by hand to see what it waits for; it must speak ACP on its standard streams",
    How.BROKEN: "check that its command starts it as an ACP agent, for instance with `--acp`, and see its version",
    How.MAX_TOKENS: "make the work package smaller",
    How.MAX_TURN_REQUESTS: "make the work package smaller, or raise the limit in the agent's own settings",
}


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    """Starts our program, which starts the configured agent and speaks with it."""
    given = task.agent.command or row.command
    if not given:
        raise ConfigError(
            f"agent {task.agent.name!r} has no command",
            f'set `command = ["opencode", "acp"]` or the like in [agents.{task.agent.name}]',
        )
    command = _found(own_files(task.repository, given))
    # A program with a harness of its own has its variables, settings and sign-in here too: what keeps the
    # settings of a repository from it is the same.
    known = row_of(ACP, command)
    plain = _launch(task, known)
    return msgspec.structs.replace(
        plain,
        argv=(*PROGRAM, *command),
        stdin=msgspec.json.encode(_order(task)),
        env={**plain.env, **dict(known.acp_env if known else ())},
    )


def reading(row: HarnessRow, task: AgentTask, talk: Talk) -> StreamReading:
    return AcpReading(FirstSign(talk, task.agent.first_sign_s))


def _launch(task: AgentTask, known: HarnessRow | None) -> Launch:
    if known is None:
        return _unknown(task)
    if known.driven_by != ACP:
        by_session = msgspec.structs.replace(task.agent, mcp_tools=False)  # the tools come with the session
        return harness_of(known.kind).launch(msgspec.structs.replace(task, agent=by_session))
    if found := next((name for name in known.would_run if (task.checkout / name).exists()), None):
        raise ConfigError(
            f"{known.program} would run the programs of this repository in {found}",
            "use another agent here, or remove them from the branch that the work starts from",
        )
    return launch_of(task, known, ())


def _unknown(task: AgentTask) -> Launch:
    """Of a program that we know nothing about: it has to reach its model, with what the person passes on."""
    return Launch((), b"", network=True, env=run_variables(task), pass_env=task.agent.env)


def _found(command: tuple[str, ...]) -> tuple[str, ...]:
    """With the program's whole path where it is on PATH: the cage shows what lies around files that are named."""
    program, *arguments = command
    return (shutil.which(program, path=safe_path(os.environ.get("PATH", ""))) or program, *arguments)


def _order(task: AgentTask) -> Order:
    scope = task.scope
    return Order(
        checkout=str(task.checkout),
        prompt=str(task.prompt_xml),
        may_run=task.caged,
        handshake_s=HANDSHAKE_S,
        cancel_s=CANCEL_S,
        close_s=CLOSE_S,
        readable=(str(task.prompt_xml), task.envelope.prompt_path, *task.envelope.context_paths),
        entries=scope.entries,
        set_aside=tuple(sorted(scope.set_aside)),
        lock_files=tuple(sorted(scope.lock_files)),
        litter=scope.litter,
        has_tools=task.offers_tools,
    )


class AcpReading:
    """The lines of our program. The answer is the agent's last message; what it said before it is shown only."""

    def __init__(self, first_sign: FirstSign) -> None:
        self._first_sign = first_sign
        self._parts: list[str] = []
        self._length = 0
        self._blockers: list[str] = []
        self._usage = Usage()
        self._unread = 0
        self._lost_text = False
        self._ended: AcpEnded | None = None

    def begin(self) -> None:
        self._first_sign.begin()

    def line(self, text: str) -> Iterable[AgentEvent]:
        try:
            line = read_json(text, Line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return ()
        if not isinstance(line, Noted | Unread):
            self._first_sign.seen()
        return (self._taken(line),)

    def _taken(self, line: Line) -> AgentEvent:
        match line:
            case Said():
                return self._said(line)
            case Used():
                return self._used(line)
            case Changed():
                return AgentEvent(EventKind.FILE, path=line.path, removed=line.removed, failed=line.failed)
            case ToolRan():
                kind = EventKind.COMMAND if line.is_command else EventKind.TOOL
                return AgentEvent(kind, line.title, failed=line.failed)
            case Noted():
                return AgentEvent(EventKind.NOTICE, line.text, line.path)
            case Unread():
                self._unread += 1
                self._lost_text = self._lost_text or line.is_text
                return notice("an update of it could not be read", failed=True)
            case AcpEnded():
                self._ended = line
                return AgentEvent(EventKind.END, line.reason or line.how, failed=line.how is not How.END_TURN)

    def _said(self, line: Said) -> AgentEvent:
        if line.begins:
            self._blockers = [*self._blockers, *blockers_in("".join(self._parts))][:MOST_BLOCKERS]
            self._parts, self._length = [], 0
        self._length += len(line.text)
        if self._length <= MOST_ANSWER:
            self._parts.append(line.text)
        return AgentEvent(EventKind.TEXT, line.text, is_piece=True)

    def _used(self, line: Used) -> AgentEvent:
        """Tokens come with the end of the turn, the cost before it and then again."""
        before = self._usage
        self._usage = Usage(
            max(line.input_tokens, before.input_tokens),
            max(line.cached_input_tokens, before.cached_input_tokens),
            max(line.output_tokens, before.output_tokens),
            before.cost_usd if line.cost_usd is None else line.cost_usd,
        )
        return AgentEvent(EventKind.USAGE, usage=self._usage)

    def report(self, finished: FinishedRun) -> AgentReport:
        self._first_sign.seen()
        report = self._first_sign.report() if self._first_sign.missed else _judged(self._ended, finished)
        return msgspec.structs.replace(
            report,
            answer="".join(self._parts),
            usage=self._usage,
            cut=self._length > MOST_ANSWER or finished.skipped_lines > 0 or self._lost_text,
            remark=f"{self._unread} update{'s' * (self._unread > 1)} could not be read" if self._unread else "",
            blockers=tuple(self._blockers),
        )


def _judged(ended: AcpEnded | None, finished: FinishedRun) -> AgentReport:
    """What the end means. Without its last line, and when time ran out, our program did not see an end."""
    plain = report_of_plain_program(finished)
    if finished.over or finished.timed_out or finished.signal is not None or ended is None:
        lost = plain.ending is Ending.COMPLETED
        return _failed("it ended without a word about how") if lost else plain
    if ended.how is How.END_TURN:
        return plain
    if finished.told_to_stop:
        return _failed(cut_short(finished))
    return _unsuccessful(ended, finished)


# The name that JSON-RPC gives to every error of a peer (-32603): it says nothing about the cause.
_RPC_INTERNAL = "Internal error: "


def _unsuccessful(ended: AcpEnded, finished: FinishedRun) -> AgentReport:
    reason = ended.reason or _REASONS.get(ended.how, "it failed")
    remedy = _REMEDIES.get(ended.how, "")
    if ended.how in (How.SIGN_IN, How.NOT_STARTED):
        return AgentReport("", Ending.NOT_RUNNABLE, reason, remedy=remedy)
    if ended.how is How.EXITED:
        return _of_exit(ended, finished)
    if ended.how is How.ERROR:  # the text of the error says whether another try may help
        said = reason.removeprefix(_RPC_INTERNAL)
        meaning = meaning_of(Trouble(said), _REMEDIES[How.SIGN_IN], finished.ended_at_s)
        return AgentReport("", meaning.ending, reason, meaning.retry_at_s, remedy=meaning.remedy)
    return msgspec.structs.replace(_failed(reason), remedy=remedy)


def _of_exit(ended: AcpEnded, finished: FinishedRun) -> AgentReport:
    """An agent that exited is judged by its own exit status and what it wrote to stderr."""
    status = ended.agent_status
    if status == 0:
        return _failed(f"{ended.reason}, with exit status 0")
    signal = -status if status is not None and status < 0 else None
    own = msgspec.structs.replace(finished, exit_status=None if signal else status, signal=signal)
    report = report_of_plain_program(own)
    return msgspec.structs.replace(report, reason=f"{ended.reason}: {report.reason}")


def _failed(reason: str) -> AgentReport:
    return AgentReport("", Ending.FAILED, reason)
