"""JSON-RPC 2.0 messages, one per line, as MCP and ACP send them over standard streams."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw, UnsetType

from phasegate.typed import read_json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class InvalidRpcMessage(Exception):
    """A line that is not a JSON-RPC 2.0 message; `code` is the error code for the sender."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class RpcErrorObject(msgspec.Struct, frozen=True):
    """Why a request failed."""

    code: int
    message: str = ""
    data: Raw = Raw(b"null")


class RpcMessage(msgspec.Struct, frozen=True):
    """A request (method and id), a notification (method only) or a response (id only)."""

    jsonrpc: str
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    result: Raw | UnsetType = UNSET
    error: RpcErrorObject | UnsetType = UNSET


def encode_message(message: Mapping[str, object]) -> bytes:
    """Encode a message as one line."""
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"


def decode_message(line: bytes) -> RpcMessage:
    """Decode one line; raise InvalidRpcMessage if it is not a message."""
    try:
        message = read_json(line, RpcMessage)
    except msgspec.ValidationError:
        raise InvalidRpcMessage(INVALID_REQUEST, "this is not a JSON-RPC 2.0 message") from None
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise InvalidRpcMessage(PARSE_ERROR, "this is not JSON") from None

    is_response = message.method is UNSET and (message.result is UNSET) != (message.error is UNSET)
    if message.jsonrpc != "2.0" or not (is_response or message.method is not UNSET):
        raise InvalidRpcMessage(INVALID_REQUEST, "this is not a JSON-RPC 2.0 message")

    return message
