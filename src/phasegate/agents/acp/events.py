"""What the ACP harness and its program in the cage say to each other: an order, and one JSON object a line."""

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
    ERROR = "error"  # it answered a request of ours with an error
    SIGN_IN = "sign_in"  # it wants somebody to sign in first
    EXITED = "exited"  # before it answered
    SILENT = "silent"  # it did not answer in time
    BROKEN = "broken"  # what it sent is not the protocol, or not our version of it
    NOT_STARTED = "not_started"


class AcpText(msgspec.Struct, frozen=True, tag="text"):
    text: str
    begins: bool = False  # a new message


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

    is_text: bool  # it may have been a piece of what the agent says


class AcpSessionEnd(msgspec.Struct, frozen=True, tag="end"):
    how: AcpEndReason
    reason: str = ""
    agent_status: int | None = None  # where it exited: negative for a signal


AcpEvent = AcpText | AcpUsage | AcpFileChange | AcpToolRun | AcpNotice | AcpUnreadableUpdate | AcpSessionEnd


class AcpSessionConfig(msgspec.Struct, frozen=True):
    """What the program is to do, on its stdin."""

    checkout: str
    prompt: str
    may_run: bool  # commands
    handshake_s: float  # for each answer until there is a session
    cancel_s: float  # between session/cancel and the end of our patience
    close_s: float  # for it to end by itself
    readable: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    lock_files: tuple[str, ...] = ()
    litter: tuple[str, ...] = ()
    has_tools: bool = False  # whether it gets our commands as an MCP server
