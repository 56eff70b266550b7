"""The client side of an Agent Client Protocol session: answers requests, reports updates."""

from __future__ import annotations

import sys
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from phasegate.agents.acp.events import (
    AcpEvent,
    AcpFileChange,
    AcpNotice,
    AcpText,
    AcpToolRun,
    AcpUnreadableUpdate,
    AcpUsage,
)
from phasegate.agents.acp.files import AcpFileAccess, FileAccessRefused, FileMissing
from phasegate.agents.acp.permission import (
    CHANGE_KINDS,
    EXECUTE_KIND,
    MAX_TITLE_CHARS,
    AcpToolCall,
    PermissionOption,
    ToolCallTracker,
    ToolCallUpdate,
    choose_option,
    get_refusal_reason,
)
from phasegate.agents.acp.wire import AcpConnection
from phasegate.core.text.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcMessage
from phasegate.typed import read_json

RESOURCE_NOT_FOUND = -32002
REFUSED = -32001
# Maximum of one output line of this program.
MAX_TEXT_CHARS = 1_000_000
_MAX_LAST_TEXT_CHARS = 1000
_TEXT_UPDATE = "agent_message_chunk"
_ERROR_PREFIX = "Error: "
_INFO_PREFIX = "Info: "
Params = TypeVar("Params")


class AcpPermissionParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    tool_call: ToolCallUpdate
    options: list[PermissionOption]


class AcpReadParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    path: str
    # counted from 1
    line: int | None = None
    limit: int | None = None


class AcpWriteParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    path: str
    content: str


class AcpTextContent(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class AcpMessageChunk(msgspec.Struct, frozen=True, rename="camel"):
    content: AcpTextContent
    message_id: str | None = None


class AcpCost(msgspec.Struct, frozen=True):
    amount: float | None = None
    currency: str = ""


class AcpUsageUpdate(msgspec.Struct, frozen=True):
    cost: AcpCost | None = None


class CodexThreadStatus(msgspec.Struct, frozen=True):
    type: str = ""


class CodexMeta(msgspec.Struct, frozen=True, rename="camel"):
    thread_status: CodexThreadStatus = CodexThreadStatus()


class AcpSessionInfoMeta(msgspec.Struct, frozen=True):
    codex: CodexMeta = CodexMeta()


class AcpSessionInfoUpdate(msgspec.Struct, frozen=True):
    meta: AcpSessionInfoMeta = msgspec.field(default=AcpSessionInfoMeta(), name="_meta")


class AcpUpdateKind(msgspec.Struct, frozen=True, rename="camel"):
    session_update: str


class AcpUpdateParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    update: Raw


class AcpRequestError(Exception):
    """An error response to a request: its code and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def emit_event(event: AcpEvent) -> None:
    """Write an event to stdout, for the harness."""
    sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
    sys.stdout.buffer.flush()


class AcpClient:
    """The state of one session. `cost_usd` and `system_error` have the last reported values."""

    def __init__(self, connection: AcpConnection, files: AcpFileAccess) -> None:
        self._connection = connection
        self._files = files
        self._tool_calls = ToolCallTracker(files.checkout)
        self._message_id: str | None = None
        self._new_message = True
        self._written: set[str] = set()
        self.session_id = ""
        self.cancelled = False
        self.last_text = ""
        self.cost_usd: float | None = None
        self.system_error = False
        # text that begins with "Info: " is a notice of the program, not a message
        self.sends_info_messages = False
        # the last text, if it looks like an error of the program
        self.last_error_text = ""
        # the refused change, if the agent has sent no text after it
        self.last_refusal = ""
        self._handlers = {
            "session/request_permission": self._handle_permission,
            "fs/read_text_file": self._handle_read,
            "fs/write_text_file": self._handle_write,
        }

    def handle_message(self, message: RpcMessage) -> None:
        """Answer a request or apply a notification; ignore unexpected responses."""
        if message.method is UNSET:
            return

        if message.id is not UNSET and message.id is not None:
            self._connection.send(
                {"id": message.id, **self._answer_request(message.method, message.params)}
            )
        elif message.method == "session/update":
            self._handle_update(message.params)

    def _answer_request(self, method: str, params: Raw) -> dict[str, object]:
        try:
            if method not in self._handlers:
                raise AcpRequestError(
                    METHOD_NOT_FOUND, f"Method not found: {method[:MAX_TITLE_CHARS]}"
                )

            return {"result": self._handlers[method](params)}
        except AcpRequestError as error:
            return {"error": {"code": error.code, "message": str(error)}}

    def _handle_permission(self, raw: Raw) -> dict[str, object]:
        """Answer a permission request; report a refusal as an event."""
        params = _decode_params(AcpPermissionParams, raw)
        self._require_session(params.session_id)
        call = self._tool_calls.apply_update(params.tool_call)
        self._new_message = True
        if self.cancelled:
            return {"outcome": {"outcome": "cancelled"}}

        reason = get_refusal_reason(call, self._files)
        answer = choose_option(params.options, call, allowed=not reason)
        if reason:
            self._report_refusal(f"{call.title or 'a tool'}: {reason}", call)
        elif answer["outcome"] == {"outcome": "cancelled"}:
            self._report_refusal(f"{call.title}: it does not offer a one-time permission", call)

        return answer

    def _report_refusal(self, text: str, call: AcpToolCall) -> None:
        self.last_refusal = text
        emit_event(AcpNotice(f"permission refused: {text}", next(iter(call.paths), "")))

    def _handle_read(self, raw: Raw) -> dict[str, object]:
        """Answer a request to read a text file inside the allowed paths."""
        params = _decode_params(AcpReadParams, raw)
        self._require_session(params.session_id)

        try:
            text = self._files.read_text(params.path)
        except FileAccessRefused as refusal:
            raise AcpRequestError(REFUSED, f"refused: {refusal}") from None
        except FileMissing:
            # Agents search for these words to distinguish a new file from an unreadable one.
            raise AcpRequestError(
                RESOURCE_NOT_FOUND, f"Resource not found: ENOENT: no such file: {params.path}"
            ) from None

        return {"content": _slice_lines(text, params.line, params.limit)}

    def _handle_write(self, raw: Raw) -> dict[str, object]:
        """Write a file for the agent, if its scope allows it, and emit an event."""
        params = _decode_params(AcpWriteParams, raw)
        self._require_session(params.session_id)
        if self.cancelled:
            raise AcpRequestError(REFUSED, "refused: the turn was cancelled")

        try:
            name = self._files.write_text(params.path, params.content)
            self._written.add(name)
            emit_event(AcpFileChange(name))
        except FileAccessRefused as refusal:
            emit_event(AcpNotice(f"write refused: {refusal}", params.path))
            raise AcpRequestError(REFUSED, f"refused: {refusal}") from None

        return {}

    def _require_session(self, session_id: str) -> None:
        if not self.session_id or session_id != self.session_id:
            raise AcpRequestError(INVALID_PARAMS, "unknown session")

    def _handle_update(self, raw: Raw) -> None:
        """Apply an update. An unreadable one is only reported; it never grants a permission."""
        kind = _TEXT_UPDATE

        try:
            params = _decode_params(AcpUpdateParams, raw)
            kind = _decode_params(AcpUpdateKind, params.update).session_update
            if params.session_id == self.session_id:
                self._apply_update(kind, params.update)
        except AcpRequestError:
            emit_event(AcpUnreadableUpdate(is_text=kind == _TEXT_UPDATE))

    def _apply_update(self, kind: str, update: Raw) -> None:
        """Apply a session update: text, tool call, cost or status."""
        match kind:
            case "agent_message_chunk":
                self._apply_text(_decode_params(AcpMessageChunk, update))
            case "tool_call" | "tool_call_update":
                self._new_message = self._new_message or kind == "tool_call"
                self._apply_tool_call(_decode_params(ToolCallUpdate, update))
            case "usage_update":
                cost = _decode_params(AcpUsageUpdate, update).cost
                if (
                    cost is not None
                    and cost.currency == "USD"
                    and cost.amount is not None
                    and cost.amount >= 0
                ):
                    self.cost_usd = cost.amount
                    emit_event(AcpUsage(cost_usd=cost.amount))
            case "session_info_update":
                # codex-acp reports success at the end of a turn with a system error.
                status = _decode_params(AcpSessionInfoUpdate, update).meta.codex.thread_status.type
                if status:
                    self.system_error = status == "systemError"

    def _apply_text(self, chunk: AcpMessageChunk) -> None:
        """Add a text chunk to the last message, and remember a refusal or error text."""
        if chunk.content.type != "text" or not chunk.content.text:
            return
        # The id tells where a new message begins.
        if chunk.message_id is not None:
            self._new_message = chunk.message_id != self._message_id
            self._message_id = chunk.message_id

        text = chunk.content.text
        if self.sends_info_messages and text.startswith(_INFO_PREFIX):
            emit_event(AcpNotice(text))
            return

        self.last_refusal = ""
        self.last_error_text = text if text.startswith(_ERROR_PREFIX) else ""
        if self._new_message:
            self.last_text = ""

        self.last_text = (self.last_text + text)[-_MAX_LAST_TEXT_CHARS:]
        for start in range(0, len(text), MAX_TEXT_CHARS):
            emit_event(AcpText(text[start : start + MAX_TEXT_CHARS], begins=self._new_message))
            self._new_message = False

    def _apply_tool_call(self, update: ToolCallUpdate) -> None:
        """Update a tool call, and emit an event for it when it finishes."""
        was_finished = self._tool_calls.is_finished(update.tool_call_id)
        call = self._tool_calls.apply_update(update)
        if was_finished or not call.is_finished:
            return

        failed = call.status == "failed"
        if call.kind in CHANGE_KINDS:
            for name in map(self._files.format_path, call.paths):
                # A file that we wrote for the agent has been reported already.
                if name not in self._written:
                    emit_event(AcpFileChange(name, removed=call.kind == "delete", failed=failed))

                self._written.discard(name)
        else:
            emit_event(AcpToolRun(call.title, is_command=call.kind == EXECUTE_KIND, failed=failed))


def _decode_params(kind: type[Params], raw: Raw) -> Params:
    try:
        return read_json(raw, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AcpRequestError(
            INVALID_PARAMS, f"Invalid params: {str(error)[:MAX_TITLE_CHARS]}"
        ) from None


def _slice_lines(text: str, line: int | None, limit: int | None) -> str:
    if line is None and limit is None:
        return text

    lines = text.splitlines(keepends=True)[max(line or 1, 1) - 1 :]
    if limit is not None:
        lines = lines[: max(limit, 0)]

    return "".join(lines)
