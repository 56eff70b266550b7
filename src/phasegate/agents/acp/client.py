"""Our side of a session of the Agent Client Protocol: answers what the agent asks, and notes what it says it does."""

from __future__ import annotations

import sys
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from phasegate.agents.acp.events import Changed, Line, Noted, Said, ToolRan, Unread, Used
from phasegate.agents.acp.files import AcpPlaces, FileMissing, WriteRefused
from phasegate.agents.acp.permission import (
    CHANGING,
    LONGEST_TITLE,
    RUNNING,
    Option,
    ToolCall,
    ToolCallFields,
    ToolCalls,
    outcome,
    why_refused,
)
from phasegate.agents.acp.wire import Wire, WireMessage
from phasegate.typed import read_json

METHOD_NOT_FOUND, INVALID_PARAMS, RESOURCE_NOT_FOUND, REFUSED = -32601, -32602, -32002, -32001
LONGEST_TEXT = 1_000_000  # of one line of ours
_LONGEST_LAST = 1000
_TEXT = "agent_message_chunk"
_ERROR, _ASIDE = "Error: ", "Info: "
Params = TypeVar("Params")


class PermissionParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    tool_call: ToolCallFields
    options: list[Option]


class ReadParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    path: str
    line: int | None = None  # from 1
    limit: int | None = None


class WriteParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    path: str
    content: str


class TextContent(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class Chunk(msgspec.Struct, frozen=True, rename="camel"):
    content: TextContent
    message_id: str | None = None


class Cost(msgspec.Struct, frozen=True):
    amount: float | None = None
    currency: str = ""


class UsageUpdate(msgspec.Struct, frozen=True):
    cost: Cost | None = None


class ThreadStatus(msgspec.Struct, frozen=True):
    type: str = ""


class CodexMeta(msgspec.Struct, frozen=True, rename="camel"):
    thread_status: ThreadStatus = ThreadStatus()


class InfoMeta(msgspec.Struct, frozen=True):
    codex: CodexMeta = CodexMeta()


class InfoUpdate(msgspec.Struct, frozen=True):
    meta: InfoMeta = msgspec.field(default=InfoMeta(), name="_meta")


class UpdateKind(msgspec.Struct, frozen=True, rename="camel"):
    session_update: str


class UpdateParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    update: Raw


class Wrong(Exception):
    """An answer that is an error: its code and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def say(line: Line) -> None:
    """Tell the harness."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


class Client:
    """What is known of one session. `cost_usd` and `system_error` are what the agent said last."""

    def __init__(self, wire: Wire, places: AcpPlaces) -> None:
        self._wire, self._places = wire, places
        self._calls = ToolCalls(places.checkout)
        self._message: str | None = None
        self._new_message = True
        self._written: set[str] = set()
        self.session = ""
        self.cancelled = False
        self.last_text = ""
        self.cost_usd: float | None = None
        self.system_error = False
        self.has_asides = False  # what begins with "Info: " is a notice of the program, not a message
        self.error_said = ""  # what it said last, if that reads like an error of its own
        self.refused = ""  # the change that was refused, if it said nothing after it
        self._answers = {
            "session/request_permission": self._permission,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
        }

    def take(self, message: WireMessage) -> None:
        """Answer a request, note a notification. A response that nobody waits for is nothing."""
        if message.method is UNSET:
            return
        if message.id is not UNSET and message.id is not None:
            self._wire.send({"id": message.id, **self._answer(message.method, message.params)})
        elif message.method == "session/update":
            self._note(message.params)

    def _answer(self, method: str, params: Raw) -> dict[str, object]:
        try:
            if method not in self._answers:
                raise Wrong(METHOD_NOT_FOUND, f"Method not found: {method[:LONGEST_TITLE]}")
            return {"result": self._answers[method](params)}
        except Wrong as wrong:
            return {"error": {"code": wrong.code, "message": str(wrong)}}

    def _permission(self, raw: Raw) -> dict[str, object]:
        params = _decoded(PermissionParams, raw)
        self._require_session(params.session_id)
        call = self._calls.note(params.tool_call)
        self._new_message = True
        if self.cancelled:
            return {"outcome": {"outcome": "cancelled"}}
        reason = why_refused(call, self._places)
        answer = outcome(params.options, call, allowed=not reason)
        if reason:
            self._say_refused(f"{call.title or 'a tool'}: {reason}", call)
        elif answer["outcome"] == {"outcome": "cancelled"}:
            self._say_refused(f"{call.title}: it offers no permission for this one time", call)
        return answer

    def _say_refused(self, text: str, call: ToolCall) -> None:
        self.refused = text
        say(Noted(f"permission refused: {text}", next(iter(call.paths), "")))

    def _read(self, raw: Raw) -> dict[str, object]:
        params = _decoded(ReadParams, raw)
        self._require_session(params.session_id)
        try:
            text = self._places.read_text(params.path)
        except WriteRefused as refusal:
            raise Wrong(REFUSED, f"refused: {refusal}") from None
        except FileMissing:
            # Agents look for these words to tell a new file from a file that cannot be read.
            raise Wrong(RESOURCE_NOT_FOUND, f"Resource not found: ENOENT: no such file: {params.path}") from None
        return {"content": _part_of(text, params.line, params.limit)}

    def _write(self, raw: Raw) -> dict[str, object]:
        params = _decoded(WriteParams, raw)
        self._require_session(params.session_id)
        if self.cancelled:
            raise Wrong(REFUSED, "refused: the turn was cancelled")
        try:
            name = self._places.write_text(params.path, params.content)
            self._written.add(name)
            say(Changed(name))
        except WriteRefused as refusal:
            say(Noted(f"write refused: {refusal}", params.path))
            raise Wrong(REFUSED, f"refused: {refusal}") from None
        return {}

    def _require_session(self, session: str) -> None:
        if not self.session or session != self.session:
            raise Wrong(INVALID_PARAMS, "there is no such session")

    def _note(self, raw: Raw) -> None:
        """Note an update. One that cannot be read says nothing, and nothing is allowed because of it."""
        kind = _TEXT
        try:
            params = _decoded(UpdateParams, raw)
            kind = _decoded(UpdateKind, params.update).session_update
            if params.session_id == self.session:
                self._note_update(kind, params.update)
        except Wrong:
            say(Unread(is_text=kind == _TEXT))

    def _note_update(self, kind: str, update: Raw) -> None:
        match kind:
            case "agent_message_chunk":
                self._note_text(_decoded(Chunk, update))
            case "tool_call" | "tool_call_update":
                self._new_message = self._new_message or kind == "tool_call"
                self._note_call(_decoded(ToolCallFields, update))
            case "usage_update":
                cost = _decoded(UsageUpdate, update).cost
                if cost is not None and cost.currency == "USD" and cost.amount is not None and cost.amount >= 0:
                    self.cost_usd = cost.amount
                    say(Used(cost_usd=cost.amount))
            case "session_info_update":  # codex-acp ends such a turn as if all were well
                status = _decoded(InfoUpdate, update).meta.codex.thread_status.type
                self.system_error = status == "systemError" if status else self.system_error

    def _note_text(self, chunk: Chunk) -> None:
        if chunk.content.type != "text" or not chunk.content.text:
            return
        if chunk.message_id is not None:  # it says itself where messages begin
            self._new_message = chunk.message_id != self._message
            self._message = chunk.message_id
        text = chunk.content.text
        if self.has_asides and text.startswith(_ASIDE):
            say(Noted(text))
            return
        self.refused, self.error_said = "", text if text.startswith(_ERROR) else ""
        self.last_text = (text if self._new_message else self.last_text + text)[-_LONGEST_LAST:]
        for start in range(0, len(text), LONGEST_TEXT):
            say(Said(text[start : start + LONGEST_TEXT], begins=self._new_message))
            self._new_message = False

    def _note_call(self, news: ToolCallFields) -> None:
        was_over = self._calls.is_over(news.tool_call_id)
        call = self._calls.note(news)
        if was_over or not call.is_over:
            return
        failed = call.status == "failed"
        if call.kind in CHANGING:
            for name in map(self._places.shown, call.paths):
                if name not in self._written:  # otherwise we said so when we wrote it
                    say(Changed(name, removed=call.kind == "delete", failed=failed))
                self._written.discard(name)
        else:
            say(ToolRan(call.title, is_command=call.kind == RUNNING, failed=failed))


def _decoded(kind: type[Params], raw: Raw) -> Params:
    try:
        return read_json(raw, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Wrong(INVALID_PARAMS, f"Invalid params: {str(error)[:LONGEST_TITLE]}") from None


def _part_of(text: str, line: int | None, limit: int | None) -> str:
    if line is None and limit is None:
        return text
    start = max(line or 1, 1) - 1
    lines = text.splitlines(keepends=True)
    return "".join(lines[start:] if limit is None else lines[start : start + max(limit, 0)])
