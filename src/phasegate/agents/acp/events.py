"""Messages between the ACP harness and its program in the sandbox.

The harness sends one config; the program prints one JSON object per line.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class AcpEndReason(StrEnum):
    """How a session ended. The first five are the stop reasons of the protocol."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"
    # the agent answered a request with an error
    ERROR = "error"
    # the agent requires a sign-in
    SIGN_IN = "sign_in"
    # the agent exited before it answered
    EXITED = "exited"
    # the agent did not answer in time
    SILENT = "silent"
    # the agent violated the protocol, or uses another version of it
    BROKEN = "broken"
    NOT_STARTED = "not_started"


class AcpText(msgspec.Struct, frozen=True, tag="text"):
    text: str
    # starts a new message
    begins: bool = False


class AcpUsage(msgspec.Struct, frozen=True, tag="usage"):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class AcpFileChange(msgspec.Struct, frozen=True, tag="file"):
    path: str
    removed: bool = False
    failed: bool = False


class AcpToolRun(msgspec.Struct, frozen=True, tag="tool"):
    title: str
    is_command: bool = False
    failed: bool = False


class AcpNotice(msgspec.Struct, frozen=True, tag="notice"):
    """A message for the user, such as a denied permission or a rejected write."""

    text: str
    path: str = ""


class AcpUnreadableUpdate(msgspec.Struct, frozen=True, tag="unread"):
    """A session update that could not be parsed."""

    # it may have been a part of a message
    is_text: bool


class AcpSessionEnd(msgspec.Struct, frozen=True, tag="end"):
    how: AcpEndReason
    reason: str = ""
    # exit status of the agent if it exited; negative for a signal
    agent_status: int | None = None


AcpEvent = (
    AcpText
    | AcpUsage
    | AcpFileChange
    | AcpToolRun
    | AcpNotice
    | AcpUnreadableUpdate
    | AcpSessionEnd
)


class AcpSessionConfig(msgspec.Struct, frozen=True):
    """The configuration of the program, sent to its stdin."""

    checkout: str
    prompt: str
    # the agent may run commands
    may_run: bool
    # time-out of each answer until the session is open
    handshake_s: float
    # time-out after session/cancel
    cancel_s: float
    # time for the agent to exit by itself
    close_s: float
    readable: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    lock_files: tuple[str, ...] = ()
    litter: tuple[str, ...] = ()
    # offer our commands as an MCP server
    has_tools: bool = False
