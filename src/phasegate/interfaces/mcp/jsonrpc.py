"""JSON-RPC on stdin and stdout, a message a line: each request in a thread of its own, cancelled by its id."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import BinaryIO

import msgspec

from phasegate.typed import read_json

LONGEST_LINE = 4_000_000
MOST_CALLS = 32
LONGEST_END_S = 5.0
PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
CANCELLED = "notifications/cancelled"

Fields = dict[str, object]
Id = str | int


class McpError(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Call:
    """One request of the client, while it is answered."""

    def __init__(self, wire: McpWire, id_: Id, method: str, params: Fields) -> None:
        self._wire, self.id, self.method, self.params = wire, id_, method, params
        self.cancelled = Event()
        self._steps = 0

    @property
    def meta(self) -> Fields:
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    def progress(self, message: str) -> None:
        """Tell the client what goes on, if it wants to know."""
        token = self.meta.get("progressToken")
        if isinstance(token, str | int) and not self.cancelled.is_set():
            self._steps += 1
            told: Fields = {"progressToken": token, "progress": self._steps, "message": message}
            self._wire.send({"method": "notifications/progress", "params": told})

    def ask(self, method: str, params: Fields) -> object:
        """A request of ours to the client; its result. None if it is refused, or this call is cancelled."""
        return self._wire.ask(method, params, self.cancelled)


class _Asked:
    """A request of ours that waits for its answer."""

    def __init__(self) -> None:
        self.is_there = Event()
        self.result: object = None


class McpWire:
    """The two streams. Nothing but messages is written to the second one."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._writing, self._calling = Lock(), Lock()
        self._calls: dict[Id, tuple[Call, Thread]] = {}
        self._asked: dict[Id, _Asked] = {}
        self._questions = 0

    def serve(self, handle: Callable[[Call], object]) -> None:
        """Answer requests until the client has gone; then every call still open is cancelled."""
        while line := self._source.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                self._skip_rest(line)
                self._refuse(None, McpError(INVALID_REQUEST, f"a message may have {LONGEST_LINE} bytes"))
            elif line.strip():
                self._take(line, handle)
        with self._calling:
            open_calls = [*self._calls.values()]
        for call, _ in open_calls:
            call.cancelled.set()
        for _, thread in open_calls:
            thread.join(LONGEST_END_S)

    def send(self, message: Fields) -> None:
        """Write one message; that the client has gone is found out by reading."""
        data = msgspec.json.encode({"jsonrpc": "2.0", **message})
        with self._writing:
            try:
                self._sink.write(data + b"\n")
                self._sink.flush()
            except OSError:
                return

    def ask(self, method: str, params: Fields, cancelled: Event) -> object:
        """Ask the client something and wait for its answer, or until the call that needs it is cancelled."""
        asked = _Asked()
        with self._calling:
            self._questions += 1
            id_ = f"phasegate-{self._questions}"
            self._asked[id_] = asked
        self.send({"id": id_, "method": method, "params": params})
        while not asked.is_there.wait(0.1):
            if cancelled.is_set():
                self.send({"method": CANCELLED, "params": {"requestId": id_}})
                break
        with self._calling:
            self._asked.pop(id_, None)
        return asked.result

    def _skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._source.readline(LONGEST_LINE)

    def _take(self, line: bytes, handle: Callable[[Call], object]) -> None:
        try:
            message = read_json(line)
        except (msgspec.DecodeError, RecursionError):
            return self._refuse(None, McpError(PARSE_ERROR, "this is not JSON"))
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return self._refuse(None, McpError(INVALID_REQUEST, "this is not a JSON-RPC 2.0 message"))
        id_, method, params = message.get("id"), message.get("method"), message.get("params", {})
        if method is None:
            return self._answered(id_, message.get("result"))
        if not isinstance(method, str) or not isinstance(params, dict):
            return self._refuse(_id_of(id_), McpError(INVALID_REQUEST, "a method and an object of parameters is due"))
        if "id" not in message:
            return self._notified(method, params)
        return self._called(id_, method, params, handle)

    def _answered(self, id_: object, result: object) -> None:
        with self._calling:
            asked = self._asked.get(id_) if isinstance(id_, str) else None
        if asked is not None:
            asked.result = result
            asked.is_there.set()

    def _notified(self, method: str, params: Fields) -> None:
        found = _id_of(params.get("requestId"))
        if method != CANCELLED or found is None:
            return
        with self._calling:
            call = self._calls.get(found)
        if call is not None:
            call[0].cancelled.set()

    def _called(self, given: object, method: str, params: Fields, handle: Callable[[Call], object]) -> None:
        id_ = _id_of(given)
        if id_ is None:
            return self._refuse(None, McpError(INVALID_REQUEST, "an id is a text or a whole number"))
        call = Call(self, id_, method, params)
        thread = Thread(target=self._answer, args=(call, handle), name=f"mcp {method}", daemon=True)
        with self._calling:
            is_refused = id_ in self._calls or len(self._calls) >= MOST_CALLS
            if not is_refused:
                self._calls[id_] = (call, thread)
        if is_refused:
            return self._refuse(id_, McpError(INVALID_REQUEST, f"the id is in use, or {MOST_CALLS} calls are open"))
        return thread.start()

    def _answer(self, call: Call, handle: Callable[[Call], object]) -> None:
        try:
            result = handle(call)
        except McpError as error:
            self._end(call)
            self._refuse(call.id, error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._end(call)
            self._refuse(call.id, McpError(INTERNAL, f"internal error ({type(error).__name__})"))
        else:
            self._end(call)
            if not call.cancelled.is_set():  # a cancelled request gets no answer
                self.send({"id": call.id, "result": result})

    def _end(self, call: Call) -> None:
        with self._calling:
            self._calls.pop(call.id, None)

    def _refuse(self, id_: Id | None, error: McpError) -> None:
        data = {} if error.data is None else {"data": error.data}
        self.send({"id": id_, "error": {"code": error.code, "message": str(error), **data}})


def _id_of(given: object) -> Id | None:
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Stdin and stdout for messages alone: whatever else this process prints goes to stderr."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink
