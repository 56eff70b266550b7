"""The port between us and agent programs: how one is started, and what its end means.

A harness starts nothing itself. It describes a launch, the cage carries it out, and a reading of
the harness takes in each line as it comes, and at last the end. That an agent failed is a value;
that it could not be started is an exception of the cage or of `launch`.
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
# What is more is a mistake, and too much of it cannot be added up
MAX_TOKENS = 10**12
MAX_COST_USD = 1e9


class AgentConfig(msgspec.Struct, frozen=True):
    """What a person configured about one agent, as far as its harness needs it."""

    name: str
    command: tuple[str, ...] = ()
    # Names of variables to pass through; values are never configured
    env: tuple[str, ...] = ()
    # Of a scripted agent
    scenario: str = ""
    # Empty: the program's own choice
    model: str = ""
    # How long to wait for the first sign of its model
    first_output_timeout_s: float = 300.0
    # Our commands as tools too; None: where its own shell is closed
    mcp_tools: bool | None = None


class AgentTask(msgspec.Struct, frozen=True):
    """One run of one agent."""

    envelope: Envelope
    agent: AgentConfig
    repository: Path
    checkout: Path
    prompt_xml: Path
    # Plan, challenge, implement, review or archive
    phase: str
    # The key, such as 06-implementation
    workflow_phase: str = ""
    round: int = 1
    # A sandbox holds it: where none does, the program's own permissions must
    sandboxed: bool = False
    # What it may change; for the harnesses that are asked before it happens
    scope: Scope = EMPTY_SCOPE

    @property
    def has_mcp_tools(self) -> bool:
        """Whether its program gets our commands as an MCP server.

        In a cage its shell is open and has them anyway.
        """
        if self.agent.mcp_tools is not None:
            return self.agent.mcp_tools
        return not self.sandboxed


class Launch(msgspec.Struct, frozen=True):
    """How to start an agent program. It starts in the checkout."""

    argv: tuple[str, ...]
    stdin: bytes | Path
    network: bool
    # Values that we set
    env: Mapping[str, str] = {}
    # Values where neither we nor the person set one: a file cannot fill the gap
    default_env: Mapping[str, str] = {}
    # Names whose values come from our own environment, never from a file
    pass_env: tuple[str, ...] = ()
    # Besides what the program itself needs
    readable: tuple[Path, ...] = ()
    # Placed in the job's own HOME before the start
    home_files: Mapping[str, bytes] = {}
    # Variables that name one of these files, by its name
    home_path_variables: Mapping[str, str] = {}
    # Of the person's home: lent to the job, under the same names
    sign_in_files: tuple[str, ...] = ()
    # For a conversation: the reading goes on with `Talk.send`
    keep_stdin_open: bool = False


class FinishedRun(msgspec.Struct, frozen=True):
    """A process that has ended.

    An exit status, or the signal that ended it, or neither if nobody knows.
    """

    exit_status: int | None
    stdout: str
    stderr: str
    signal: int | None = None
    # Output was left out in the middle
    truncated: bool = False
    sigterm_sent: bool = False
    # Not by the clock: somebody wanted it to end
    stop_requested: bool = False
    timed_out: bool = False
    # The limit at which it was ended, in words
    exceeded_limit: str = ""
    duration_s: float = 0.0
    # Seconds since 1970, to which "try again in 30 s" is added
    ended_at_s: float = 0.0
    # Lines of stdout that were too long to be read
    skipped_lines: int = 0


class Ending(StrEnum):
    """What the end of a run means. Only evidence says whether the work is good."""

    # It came to its own end: there may be an answer
    COMPLETED = "completed"
    FAILED = "failed"
    TRANSIENT = "transient failure"
    RATE_LIMITED = "rate limited"
    # No sign of its model: perhaps a rate limit that it does not speak of
    SILENT = "silent"
    # It is not installed, not logged in, or wrongly configured
    NOT_RUNNABLE = "not runnable"


class Usage(msgspec.Struct, frozen=True):
    """What a run used, as its agent reports it.

    A count is never less than nothing: it would make room under a cap.
    """

    # All of them, those from a cache too
    input_tokens: int = 0
    # Of these, those read from a cache
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
    """What every agent does, whatever its own words for it are."""

    TEXT = "text"
    # A tool that is neither a command nor a change of a file
    TOOL = "tool"
    # A file was written or removed
    FILE = "file"
    COMMAND = "command"
    # What a command or tool gave back
    RESULT = "result"
    # All that was used so far
    USAGE = "usage"
    # A `BLOCKER:` line on stderr
    BLOCKER = "blocker"
    # A retry, a refused permission, a warning
    NOTICE = "notice"
    END = "end"


class AgentEvent(msgspec.Struct, frozen=True):
    """Something that an agent reports while it runs. It is shown and noted, never believed."""

    kind: EventKind
    # What it says, or a piece of it; the command line; the tool's name
    text: str = ""
    # Of a file
    path: str = ""
    # The file
    removed: bool = False
    failed: bool = False
    # Of a command, where its program tells
    exit_code: int | None = None
    # Of a message that goes on in the next event
    is_partial: bool = False
    usage: Usage | None = None


class AgentReport(msgspec.Struct, frozen=True):
    """What a run brought: the answer as text, and what its end means."""

    answer: str
    ending: Ending
    reason: str = ""
    # When a rate limit ends, in seconds since 1970
    retry_at_s: float | None = None
    usage: Usage | None = None
    # Something of the answer is missing
    truncated: bool = False
    # What a person can do, where the harness knows more than the ending says
    remedy: str = ""
    # `BLOCKER:` lines in what it said before its answer
    blockers: tuple[str, ...] = ()
    # What people should know although the run went on without it
    remark: str = ""


class JobHandle(Protocol):
    """The running job, as its reading may talk to it, such as `phasegate.sandbox.job.SandboxedJob`."""

    def send(self, data: bytes) -> None:
        """Add to its standard input, which the launch must have kept open."""

    def close_stdin(self) -> None:
        """Say that nothing more will come."""

    def stop(self) -> None:
        """Ask it to end; a second call kills."""


class OutputParser(Protocol):
    """What one run says, taken in while it runs. It keeps only what the report needs."""

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        """Take in one line of stdout and say what happened.

        Called live, in order; no line may make it raise.
        """

    def build_report(self, finished: FinishedRun) -> AgentReport:
        """What the run brought.

        Exit status 0 alone is never success where the agent has a protocol.
        """


@runtime_checkable
class StderrParser(Protocol):
    """A reading that also wants to know, live, what is said on stderr.

    Some tell of their waiting there alone.
    """

    def parse_stderr_line(self, text: str) -> Iterable[AgentEvent]:
        """Take in one line of stderr. No line may make it raise."""


@runtime_checkable
class JobStartListener(Protocol):
    """A reading that ends the job where no sign of a model comes in time."""

    def on_job_start(self) -> None:
        """The job starts now."""


class Harness(NamedTuple):
    """A kind of agent program.

    Its row, and the two functions of its module, which take the row before the rest.

    tests/contract/test_harness.py says what every one of them must do.
    """

    row: HarnessRow
    # How to start it; a ConfigError when the configuration does not suffice
    launch: Callable[[AgentTask], Launch]
    # Of one run; the job itself, for who is answered or stopped
    make_parser: Callable[[AgentTask, JobHandle], OutputParser]


@cache
def get_harness(kind: str) -> Harness:
    """The harness of that kind, or a ConfigError that lists the kinds.

    Only its own module is loaded.
    """
    row = HARNESSES.get(kind)
    if row is None:
        raise ConfigError(f"there is no harness {kind!r}", f"use one of: {', '.join(HARNESSES)}")

    module = import_module(f"phasegate.agents.programs.{row.driver or row.kind}")
    return Harness(row, partial(module.launch, row), partial(module.reading, row))
