"""JSON-RPC on stdin and stdout, a message a line.

Each request in a thread of its own, cancelled by its id.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import BinaryIO

import msgspec

from phasegate.typed import read_json

MAX_LINE_BYTES = 4_000_000
MAX_OPEN_CALLS = 32
SHUTDOWN_TIMEOUT_S = 5.0
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED_METHOD = "notifications/cancelled"

JsonObject = dict[str, object]
RequestId = str | int


class McpError(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Call:
    """One request of the client, while it is answered."""

    def __init__(
        self, connection: McpConnection, id_: RequestId, method: str, params: JsonObject
    ) -> None:
        self._connection = connection
        self.id = id_
        self.method = method
        self.params = params
        self.cancelled = Event()
        self._progress_count = 0

    @property
    def meta(self) -> JsonObject:
        found = self.params.get("_meta")
        if isinstance(found, dict):
            return found
        return {}

    def send_progress(self, message: str) -> None:
        """Tell the client what goes on, if it wants to know."""
        token = self.meta.get("progressToken")

        if isinstance(token, str | int) and not self.cancelled.is_set():
            self._progress_count += 1
            told: JsonObject = {
                "progressToken": token,
                "progress": self._progress_count,
                "message": message,
            }
            self._connection.send_message({"method": "notifications/progress", "params": told})

    def send_request(self, method: str, params: JsonObject) -> object:
        """A request of ours to the client; its result.

        None if it is refused, or this call is cancelled.
        """
        return self._connection.send_request(method, params, self.cancelled)


class _PendingRequest:
    """A request of ours that waits for its answer."""

    def __init__(self) -> None:
        self.answered = Event()
        self.result: object = None


class McpConnection:
    """The two streams. Nothing but messages is written to the second one."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._write_lock = Lock()
        self._calls_lock = Lock()
        self._calls: dict[RequestId, tuple[Call, Thread]] = {}
        self._pending_requests: dict[RequestId, _PendingRequest] = {}
        self._request_count = 0

    def serve(self, handle: Callable[[Call], object]) -> None:
        """Answer requests until the client has gone; then every call still open is cancelled."""
        while line := self._source.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                self._skip_rest_of_line(line)
                self._send_error(
                    None, McpError(INVALID_REQUEST, f"a message may have {MAX_LINE_BYTES} bytes")
                )
            elif line.strip():
                self._handle_line(line, handle)

        with self._calls_lock:
            open_calls = [*self._calls.values()]

        for call, _ in open_calls:
            call.cancelled.set()

        for _, thread in open_calls:
            thread.join(SHUTDOWN_TIMEOUT_S)

    def send_message(self, message: JsonObject) -> None:
        """Write one message; that the client has gone is found out by reading."""
        data = msgspec.json.encode({"jsonrpc": "2.0", **message})
        with self._write_lock:
            try:
                self._sink.write(data + b"\n")
                self._sink.flush()
            except OSError:
                return

    def send_request(self, method: str, params: JsonObject, cancelled: Event) -> object:
        """Ask the client something and wait for its answer, or until the call that needs it is
        cancelled.
        """
        asked = _PendingRequest()
        with self._calls_lock:
            self._request_count += 1
            id_ = f"phasegate-{self._request_count}"
            self._pending_requests[id_] = asked

        self.send_message({"id": id_, "method": method, "params": params})
        while not asked.answered.wait(0.1):
            if cancelled.is_set():
                self.send_message({"method": CANCELLED_METHOD, "params": {"requestId": id_}})
                break

        with self._calls_lock:
            self._pending_requests.pop(id_, None)

        return asked.result

    def _skip_rest_of_line(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._source.readline(MAX_LINE_BYTES)

    def _handle_line(self, line: bytes, handle: Callable[[Call], object]) -> None:
        try:
            message = read_json(line)
        except (msgspec.DecodeError, RecursionError):
            return self._send_error(None, McpError(PARSE_ERROR, "this is not JSON"))

        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return self._send_error(
                None, McpError(INVALID_REQUEST, "this is not a JSON-RPC 2.0 message")
            )

        id_ = message.get("id")
        method = message.get("method")
        params = message.get("params", {})
        if method is None:
            return self._handle_response(id_, message.get("result"))

        if not isinstance(method, str) or not isinstance(params, dict):
            return self._send_error(
                _parse_id(id_),
                McpError(INVALID_REQUEST, "a method and an object of parameters is due"),
            )

        if "id" not in message:
            return self._handle_notification(method, params)

        return self._start_call(id_, method, params, handle)

    def _handle_response(self, id_: object, result: object) -> None:
        with self._calls_lock:
            if isinstance(id_, str):
                asked = self._pending_requests.get(id_)
            else:
                asked = None

        if asked is not None:
            asked.result = result
            asked.answered.set()

    def _handle_notification(self, method: str, params: JsonObject) -> None:
        found = _parse_id(params.get("requestId"))
        if method != CANCELLED_METHOD or found is None:
            return

        with self._calls_lock:
            call = self._calls.get(found)

        if call is not None:
            call[0].cancelled.set()

    def _start_call(
        self, raw_id: object, method: str, params: JsonObject, handle: Callable[[Call], object]
    ) -> None:
        id_ = _parse_id(raw_id)
        if id_ is None:
            return self._send_error(
                None, McpError(INVALID_REQUEST, "an id is a text or a whole number")
            )

        call = Call(self, id_, method, params)
        thread = Thread(
            target=self._run_call, args=(call, handle), name=f"mcp {method}", daemon=True
        )
        with self._calls_lock:
            is_refused = id_ in self._calls or len(self._calls) >= MAX_OPEN_CALLS
            if not is_refused:
                self._calls[id_] = (call, thread)

        if is_refused:
            return self._send_error(
                id_,
                McpError(INVALID_REQUEST, f"the id is in use, or {MAX_OPEN_CALLS} calls are open"),
            )

        return thread.start()

    def _run_call(self, call: Call, handle: Callable[[Call], object]) -> None:
        try:
            result = handle(call)
        except McpError as error:
            self._remove_call(call)
            self._send_error(call.id, error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._remove_call(call)
            self._send_error(
                call.id, McpError(INTERNAL_ERROR, f"internal error ({type(error).__name__})")
            )
        else:
            self._remove_call(call)
            # A cancelled request gets no answer
            if not call.cancelled.is_set():
                self.send_message({"id": call.id, "result": result})

    def _remove_call(self, call: Call) -> None:
        with self._calls_lock:
            self._calls.pop(call.id, None)

    def _send_error(self, id_: RequestId | None, error: McpError) -> None:
        if error.data is None:
            data = {}
        else:
            data = {"data": error.data}
        self.send_message({"id": id_, "error": {"code": error.code, "message": str(error), **data}})


def _parse_id(given: object) -> RequestId | None:
    if isinstance(given, str | int) and not isinstance(given, bool):
        return given
    return None


def reserve_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Stdin and stdout for messages alone: whatever else this process prints goes to stderr."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)

    return source, sink
