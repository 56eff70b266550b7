"""The port to agent programs: how a program is started, and what its end means.

A harness starts nothing itself. It describes a launch, the sandbox runs it, and the harness's
output parser gets each line of output and finally the end. "The agent failed" is a value; "the
agent could not be started" is an exception of the sandbox or of `launch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from phasegate.agents.envelope import Envelope
from phasegate.core.agents.harnesses import HARNESSES, HarnessRow
from phasegate.core.paths.scope import Scope
from phasegate.errors import ConfigError

EMPTY_SCOPE = Scope(())
# Larger values are errors, and sums of them could overflow.
MAX_TOKENS = 10**12
MAX_COST_USD = 1e9


class AgentConfig(msgspec.Struct, frozen=True):
    """The part of an agent's configuration that its harness needs."""

    name: str
    command: tuple[str, ...] = ()
    # names of variables to pass through; values are never configured
    env: tuple[str, ...] = ()
    # scripted agents only
    scenario: str = ""
    # empty: the program's default
    model: str = ""
    # how long to wait for the first output of its model
    first_output_timeout_s: float = 300.0
    # offer our commands as MCP tools; None: only if the agent's shell is restricted
    mcp_tools: bool | None = None


class AgentTask(msgspec.Struct, frozen=True):
    """One run of one agent."""

    envelope: Envelope
    agent: AgentConfig
    repository: Path
    checkout: Path
    prompt_xml: Path
    # plan, challenge, implement, review or archive
    phase: str
    # phase key, such as 06-implementation
    workflow_phase: str = ""
    round: int = 1
    # without a sandbox the program's own permission system must restrict it
    sandboxed: bool = False
    # paths it may change; for harnesses that are asked for permission before each change
    scope: Scope = EMPTY_SCOPE

    @property
    def has_mcp_tools(self) -> bool:
        """Whether its program gets our commands as an MCP server.

        A sandboxed agent has an unrestricted shell, and the commands are on its PATH.
        """
        if self.agent.mcp_tools is not None:
            return self.agent.mcp_tools
        return not self.sandboxed


class Launch(msgspec.Struct, frozen=True):
    """How to start an agent program. It starts in the checkout."""

    argv: tuple[str, ...]
    stdin: bytes | Path
    network: bool
    # values that we set
    env: Mapping[str, str] = {}
    # values for variables that neither we nor the user set, so that no file can set them
    default_env: Mapping[str, str] = {}
    # names whose values come from our own environment, never from a file
    pass_env: tuple[str, ...] = ()
    # paths that are readable in addition to those that the program itself needs
    readable: tuple[Path, ...] = ()
    # written to the job's HOME before the start
    home_files: Mapping[str, bytes] = {}
    # variable -> name of a home file; the variable gets its path
    home_path_variables: Mapping[str, str] = {}
    # files of the user's home, copied to the job's HOME under the same names
    sign_in_files: tuple[str, ...] = ()
    # for interactive programs: the parser sends input with `JobHandle.send`
    keep_stdin_open: bool = False


class FinishedRun(msgspec.Struct, frozen=True):
    """A finished process: its exit status, the signal that killed it, or neither if unknown."""

    exit_status: int | None
    stdout: str
    stderr: str
    signal: int | None = None
    # the middle of the output was dropped
    truncated: bool = False
    sigterm_sent: bool = False
    # stopped on request, not by a time-out
    stop_requested: bool = False
    timed_out: bool = False
    # description of the limit that it exceeded
    exceeded_limit: str = ""
    duration_s: float = 0.0
    # Unix time, to which "try again in 30 s" is added
    ended_at_s: float = 0.0
    # lines of stdout that were too long to parse
    skipped_lines: int = 0


class Ending(StrEnum):
    """How an agent run ended; the evidence decides whether the work is good."""

    # the agent finished by itself; there may be an answer
    COMPLETED = "completed"
    FAILED = "failed"
    TRANSIENT = "transient failure"
    RATE_LIMITED = "rate limited"
    # no output from its model: perhaps a rate limit that the program does not report
    SILENT = "silent"
    # not installed, not signed in, or misconfigured
    NOT_RUNNABLE = "not runnable"


class Usage(msgspec.Struct, frozen=True):
    """Tokens and cost of a run, as its agent reports them.

    Negative counts become 0: they would create room under a spending limit.
    """

    # including those read from a cache
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "cached_input_tokens", "output_tokens"):
            msgspec.structs.force_setattr(self, name, min(max(0, getattr(self, name)), MAX_TOKENS))
        if self.cost_usd is not None:
            msgspec.structs.force_setattr(
                self, "cost_usd", min(max(0.0, self.cost_usd), MAX_COST_USD)
            )


class EventKind(StrEnum):
    """The kinds of agent events, common to all programs."""

    TEXT = "text"
    # a tool call that is neither a command nor a file change
    TOOL = "tool"
    # a file was written or removed
    FILE = "file"
    COMMAND = "command"
    # output of a command or tool
    RESULT = "result"
    # total usage so far
    USAGE = "usage"
    # a `BLOCKER:` line on stderr
    BLOCKER = "blocker"
    # a retry, a refused permission, a warning
    NOTICE = "notice"
    END = "end"


class AgentEvent(msgspec.Struct, frozen=True):
    """An event that an agent reports while it runs. It is shown and logged, but not trusted."""

    kind: EventKind
    # the message or a part of it, the command line, or the tool's name
    text: str = ""
    # the file of a FILE event
    path: str = ""
    # the file was deleted
    removed: bool = False
    failed: bool = False
    # of a command, if its program reports it
    exit_code: int | None = None
    # the message continues in the next event
    is_partial: bool = False
    usage: Usage | None = None


class AgentReport(msgspec.Struct, frozen=True):
    """The result of a run: the answer as text, and the meaning of its end."""

    answer: str
    ending: Ending
    reason: str = ""
    # Unix time at which a rate limit ends
    retry_at_s: float | None = None
    usage: Usage | None = None
    # a part of the answer is missing
    truncated: bool = False
    # what the user can do, if the harness knows more than `ending` implies
    remedy: str = ""
    # `BLOCKER:` lines in messages before the answer
    blockers: tuple[str, ...] = ()
    # a warning for the user that did not stop the run
    remark: str = ""


class JobHandle(Protocol):
    """The running job, as its output parser sees it, such as `sandbox.job.SandboxedJob`."""

    def send(self, data: bytes) -> None:
        """Write to the standard input of the program, which the launch must have kept open."""

    def close_stdin(self) -> None:
        """Close the standard input of the program."""

    def stop(self) -> None:
        """Stop the job; a second call kills it."""


class OutputParser(Protocol):
    """The parser of one run's output. It keeps only the data for the report."""

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse one line of stdout and return its events.

        Called live and in order; it must not raise, whatever the line is.
        """

    def build_report(self, finished: FinishedRun) -> AgentReport:
        """Build the report of the run.

        Exit status 0 alone does not mean success if the program has a protocol.
        """


@runtime_checkable
class StderrParser(Protocol):
    """A parser that also gets stderr live: some programs report retries only there."""

    def parse_stderr_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse one line of stderr; it must not raise, whatever the line is."""


@runtime_checkable
class JobStartListener(Protocol):
    """A parser that stops the job if its model sends no output in time."""

    def on_job_start(self) -> None:
        """Start the timer; called when the job starts."""


class Harness(NamedTuple):
    """A kind of agent program: its row, and the two functions of its module, bound to the row.

    tests/contract/test_harness.py specifies what each of them must do.
    """

    row: HarnessRow
    # describes how to start it; raises ConfigError if the configuration is incomplete
    launch: Callable[[AgentTask], Launch]
    # creates the parser of one run; the parser may send input to the job or stop it
    make_parser: Callable[[AgentTask, JobHandle], OutputParser]


@cache
def get_harness(kind: str) -> Harness:
    """Return the harness of that kind, or raise a ConfigError that lists the kinds.

    Imports only the module of that harness.
    """
    row = HARNESSES.get(kind)
    if row is None:
        raise ConfigError(f"unknown harness {kind!r}", f"available: {', '.join(HARNESSES)}")

    module = import_module(f"phasegate.agents.programs.{row.driver or row.kind}")
    return Harness(row, partial(module.launch, row), partial(module.make_parser, row))
