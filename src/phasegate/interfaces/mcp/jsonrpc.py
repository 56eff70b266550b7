"""A JSON-RPC server on stdin and stdout, one message per line.

Each request runs in its own thread and is cancelled by its id.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import BinaryIO

import msgspec
from msgspec import UNSET, UnsetType

from phasegate.core.text.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    InvalidRpcMessage,
    RpcMessage,
    decode_message,
    encode_message,
)
from phasegate.typed import read_json

MAX_LINE_BYTES = 4_000_000
MAX_OPEN_CALLS = 32
SHUTDOWN_TIMEOUT_S = 5.0
CANCELLED_METHOD = "notifications/cancelled"
_POLL_INTERVAL_S = 0.1

JsonObject = dict[str, object]
RequestId = str | int


class McpError(Exception):
    """A failed request: it is answered with an error object."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Call:
    """A request of the client, while it is being answered."""

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
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    def send_progress(self, message: str) -> None:
        """Send a progress notification, if the client asked for progress."""
        token = self.meta.get("progressToken")

        if isinstance(token, str | int) and not self.cancelled.is_set():
            self._progress_count += 1
            params: JsonObject = {
                "progressToken": token,
                "progress": self._progress_count,
                "message": message,
            }
            self._connection.send_message({"method": "notifications/progress", "params": params})

    def send_request(self, method: str, params: JsonObject) -> object:
        """Send a request to the client and return its result.

        None if the client refuses, or this call is cancelled.
        """
        return self._connection.send_request(method, params, self.cancelled)


class _PendingRequest:
    """A request to the client that is not answered yet."""

    def __init__(self) -> None:
        self.answered = Event()
        self.result: object = None


class McpConnection:
    """The input and output streams to a client. Only messages are written to the output."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._write_lock = Lock()
        self._calls_lock = Lock()
        self._calls: dict[RequestId, tuple[Call, Thread]] = {}
        self._pending_requests: dict[RequestId, _PendingRequest] = {}
        self._request_count = 0

    def serve(self, handle: Callable[[Call], object]) -> None:
        """Answer requests until the client closes the stream, then cancel all open calls."""
        while line := self._source.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                self._skip_rest_of_line(line)
                self._send_error(
                    None,
                    McpError(INVALID_REQUEST, f"a message may have at most {MAX_LINE_BYTES} bytes"),
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
        """Write one message. Write errors are ignored: the reader detects a disconnected client."""
        line = encode_message(message)
        with self._write_lock:
            try:
                self._sink.write(line)
                self._sink.flush()
            except OSError:
                return

    def send_request(self, method: str, params: JsonObject, cancelled: Event) -> object:
        """Send a request and wait for its result, or until the call that needs it is cancelled."""
        pending = _PendingRequest()
        with self._calls_lock:
            self._request_count += 1
            id_ = f"phasegate-{self._request_count}"
            self._pending_requests[id_] = pending

        self.send_message({"id": id_, "method": method, "params": params})
        while not pending.answered.wait(_POLL_INTERVAL_S):
            if cancelled.is_set():
                self.send_message({"method": CANCELLED_METHOD, "params": {"requestId": id_}})
                break

        with self._calls_lock:
            self._pending_requests.pop(id_, None)

        return pending.result

    def _skip_rest_of_line(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._source.readline(MAX_LINE_BYTES)

    def _handle_line(self, line: bytes, handle: Callable[[Call], object]) -> None:
        """Decode a message, and handle it as response, notification or call."""
        try:
            message = decode_message(line)
        except InvalidRpcMessage as error:
            return self._send_error(None, McpError(error.code, str(error)))

        if isinstance(message.method, UnsetType):
            return self._handle_response(message)

        try:
            params = read_json(message.params, JsonObject)
        except (msgspec.MsgspecError, RecursionError):
            id_ = message.id if isinstance(message.id, str | int) else None
            return self._send_error(id_, McpError(INVALID_REQUEST, "params must be an object"))

        if message.id is UNSET:
            return self._handle_notification(message.method, params)
        if not isinstance(message.id, str | int):
            return self._send_error(
                None, McpError(INVALID_REQUEST, "an id must be a string or an integer")
            )

        return self._start_call(Call(self, message.id, message.method, params), handle)

    def _handle_response(self, message: RpcMessage) -> None:
        if not isinstance(message.id, str):
            return

        with self._calls_lock:
            pending = self._pending_requests.get(message.id)

        if pending is not None:
            if not isinstance(message.result, UnsetType):
                pending.result = read_json(message.result)
            pending.answered.set()

    def _handle_notification(self, method: str, params: JsonObject) -> None:
        request_id = params.get("requestId")
        if method != CANCELLED_METHOD or not isinstance(request_id, str | int):
            return

        with self._calls_lock:
            open_call = self._calls.get(request_id)

        if open_call is not None:
            open_call[0].cancelled.set()

    def _start_call(self, call: Call, handle: Callable[[Call], object]) -> None:
        """Handle a call in a separate thread, within the limit of open calls."""
        thread = Thread(
            target=self._run_call, args=(call, handle), name=f"mcp {call.method}", daemon=True
        )
        with self._calls_lock:
            is_refused = call.id in self._calls or len(self._calls) >= MAX_OPEN_CALLS
            if not is_refused:
                self._calls[call.id] = (call, thread)

        if is_refused:
            return self._send_error(
                call.id,
                McpError(INVALID_REQUEST, f"the id is in use, or {MAX_OPEN_CALLS} calls are open"),
            )

        return thread.start()

    def _run_call(self, call: Call, handle: Callable[[Call], object]) -> None:
        """Run a call and send its result or error."""
        error: McpError | None = None
        result: object = None
        try:
            result = handle(call)
        except McpError as raised:
            error = raised
        except Exception as raised:
            traceback.print_exc(file=sys.stderr)
            error = McpError(INTERNAL_ERROR, f"internal error ({type(raised).__name__})")

        with self._calls_lock:
            self._calls.pop(call.id, None)

        if error is not None:
            self._send_error(call.id, error)
        elif not call.cancelled.is_set():
            # A cancelled request gets no answer
            self.send_message({"id": call.id, "result": result})

    def _send_error(self, id_: RequestId | None, error: McpError) -> None:
        content: JsonObject = {"code": error.code, "message": str(error)}
        if error.data is not None:
            content["data"] = error.data
        self.send_message({"id": id_, "error": content})


def reserve_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Reserve stdin and stdout for messages; anything else this process prints goes to stderr."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    os.close(null_fd)
    os.dup2(2, 1)

    return source, sink
