"""JSON-RPC over the standard streams of a child process, one message per line.

It is bounded, has deadlines and never blocks. Whatever the child sends or does not send, `receive`
returns a message or raises one of this module's exceptions.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress

from phasegate.core.text.jsonrpc import (
    InvalidRpcMessage,
    RpcMessage,
    decode_message,
    encode_message,
)

MAX_MESSAGE_BYTES = 16 * 1024**2
# Bytes of responses that the agent requested but has not read.
MAX_PENDING_BYTES = 64 * 1024**2
_CHUNK_BYTES = 1 << 16
_MAX_QUOTED_BYTES = 120
_KILL_TIMEOUT_S = 3.0


class AcpProtocolError(Exception):
    """The session cannot continue; the text explains why."""


class AcpReceiveTimeout(Exception):
    """No message arrived before the deadline."""


class AcpAgentExited(Exception):
    """The agent has exited or closed its output, and all its output has been read."""


class AcpStopRequested(Exception):
    """This process received SIGTERM; raised once."""


class AcpConnection:
    """The connection to a started agent. SIGTERM and the agent's exit wake it up."""

    def __init__(self, agent: subprocess.Popen[bytes]) -> None:
        assert agent.stdin is not None
        assert agent.stdout is not None
        self._agent = agent
        self._stdin_fd = agent.stdin.fileno()
        self._stdout_fd = agent.stdout.fileno()
        self._pending_output = bytearray()
        self._partial_line = bytearray()
        self._lines: deque[bytes] = deque()
        self._stop_requested = self._stop_raised = self._closed = False
        self._selector = selectors.DefaultSelector()
        self._wakeup_fd = self._install_signal_handlers()
        for descriptor in (self._stdin_fd, self._stdout_fd):
            os.set_blocking(descriptor, False)

        self._selector.register(self._stdout_fd, selectors.EVENT_READ)

    def _install_signal_handlers(self) -> int:
        readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._note_stop)
        # Without a handler the signal would not write to the wake-up descriptor.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(readable, selectors.EVENT_READ)

        return readable

    def _note_stop(self, *_: object) -> None:
        self._stop_requested = True

    def send(self, message: dict[str, object]) -> None:
        """Queue a message; it is written while `receive` waits."""
        self._pending_output += encode_message(message)
        if len(self._pending_output) > MAX_PENDING_BYTES:
            raise AcpProtocolError("it does not read the answers to its requests")

    def receive(self, deadline_s: float | None = None) -> RpcMessage:
        """Return the next message; `deadline_s` is a time of the monotonic clock."""
        # Checked first, so that a flood of other messages does not extend the deadline.
        if deadline_s is not None and time.monotonic() > deadline_s:
            raise AcpReceiveTimeout

        while not self._lines:
            self._wait_for_io(deadline_s)
        return _parse_message(self._lines.popleft())

    def _wait_for_io(self, deadline_s: float | None) -> None:
        """Wait for input or output until the deadline; raise AcpAgentExited if the agent ended."""
        if self._stop_requested and not self._stop_raised:
            self._stop_raised = True
            raise AcpStopRequested
        if self._closed:
            raise AcpAgentExited

        # Checked before reading: if it has exited, all its output is in the pipe.
        has_exited = self._agent.poll() is not None
        self._update_write_interest()
        wait_s = None
        if has_exited:
            wait_s = 0.0
        elif deadline_s is not None:
            wait_s = deadline_s - time.monotonic()

        ready = {key.fd for key, _ in self._selector.select(wait_s)}
        if self._wakeup_fd in ready:
            _drain(self._wakeup_fd)
        if self._stdin_fd in ready:
            self._write_pending()

        if self._stdout_fd in ready:
            self._read_lines()
        elif has_exited:
            # A child of the agent may keep the pipe open for ever.
            self._closed = True

        if not ready and not has_exited:
            raise AcpReceiveTimeout

    def _update_write_interest(self) -> None:
        watched = self._stdin_fd in self._selector.get_map()
        if self._pending_output and not watched and self._stdin_fd >= 0:
            self._selector.register(self._stdin_fd, selectors.EVENT_WRITE)
        elif watched and not self._pending_output:
            self._selector.unregister(self._stdin_fd)

    def _write_pending(self) -> None:
        try:
            written = os.write(self._stdin_fd, self._pending_output[:_CHUNK_BYTES])
            del self._pending_output[:written]
        except BlockingIOError:
            pass
        except OSError:
            # It closed its input; its output is still read.
            self._pending_output.clear()

    def _read_lines(self) -> None:
        """Read the available output and queue its complete lines."""
        try:
            data = os.read(self._stdout_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return

        if not data:
            self._closed = True
            return

        first, *rest = data.split(b"\n")
        self._partial_line += first
        for part in rest:
            if line := bytes(self._partial_line).strip():
                self._lines.append(line)

            self._partial_line = bytearray(part)

        if len(self._partial_line) > MAX_MESSAGE_BYTES:
            raise AcpProtocolError(
                f"it sent a message of more than {MAX_MESSAGE_BYTES // 1024**2} MiB"
            )

    def close(self, timeout_s: float) -> int | None:
        """Close the child's input, wait for its exit, then kill it and its process group."""
        assert self._agent.stdin is not None
        if self._stdin_fd in self._selector.get_map():
            self._selector.unregister(self._stdin_fd)

        with suppress(OSError):
            self._agent.stdin.close()

        if not self._wait_for_exit(timeout_s):
            self._signal_group(signal.SIGTERM)
            if not self._wait_for_exit(_KILL_TIMEOUT_S):
                self._signal_group(signal.SIGKILL)

        if not self._wait_for_exit(_KILL_TIMEOUT_S):
            return None

        # Kill the children that it left behind.
        self._signal_group(signal.SIGKILL)
        return self._agent.returncode

    def _signal_group(self, signal_number: int) -> None:
        with suppress(OSError):
            os.killpg(self._agent.pid, signal_number)

    def _wait_for_exit(self, timeout_s: float) -> bool:
        """Return True if the child exits in time.

        Its output is discarded, so that a full pipe does not block it.
        """
        deadline_s = time.monotonic() + timeout_s
        while self._agent.poll() is None and (left_s := deadline_s - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                if not _drain(key.fd) and key.fd == self._stdout_fd:
                    self._selector.unregister(self._stdout_fd)

        return self._agent.poll() is not None


def _drain(descriptor: int) -> bool:
    """Discard the available data; return False at the end of the stream."""
    try:
        return bool(os.read(descriptor, _CHUNK_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _parse_message(line: bytes) -> RpcMessage:
    try:
        return decode_message(line)
    except InvalidRpcMessage:
        raise AcpProtocolError(
            f"it sent an invalid protocol message: {_quote_line(line)}"
        ) from None


def _quote_line(line: bytes) -> str:
    text = line[:_MAX_QUOTED_BYTES].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "?" for char in text)
