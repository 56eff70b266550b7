"""What the ACP harness and its program in the cage say to each other.

An order, and one JSON object a line.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class AcpEndReason(StrEnum):
    """How a conversation ended. The first five are the stop reasons of the protocol."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"
    # It answered a request of ours with an error
    ERROR = "error"
    # It wants somebody to sign in first
    SIGN_IN = "sign_in"
    # Before it answered
    EXITED = "exited"
    # It did not answer in time
    SILENT = "silent"
    # What it sent is not the protocol, or not our version of it
    BROKEN = "broken"
    NOT_STARTED = "not_started"


class AcpText(msgspec.Struct, frozen=True, tag="text"):
    text: str
    # A new message
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
    """A refused permission, for instance."""

    text: str
    path: str = ""


class AcpUnreadableUpdate(msgspec.Struct, frozen=True, tag="unread"):
    """An update of the session that could not be read."""

    # It may have been a piece of what the agent says
    is_text: bool


class AcpSessionEnd(msgspec.Struct, frozen=True, tag="end"):
    how: AcpEndReason
    reason: str = ""
    # Where it exited: negative for a signal
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
    """What the program is to do, on its stdin."""

    checkout: str
    prompt: str
    # Commands
    may_run: bool
    # For each answer until there is a session
    handshake_s: float
    # Between session/cancel and the end of our patience
    cancel_s: float
    # For it to end by itself
    close_s: float
    readable: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    lock_files: tuple[str, ...] = ()
    litter: tuple[str, ...] = ()
    # Whether it gets our commands as an MCP server
    has_tools: bool = False
