"""JSON-RPC over the standard streams of a child, one message a line: bounded, with deadlines, and never blocking.

Whatever the child sends, or does not send, `receive` gives a message or raises one of the endings of this module.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress

import msgspec
from msgspec import UNSET, Raw, UnsetType

from phasegate.typed import read_json

LARGEST_MESSAGE_BYTES = 16 * 1024**2
MOST_UNREAD_BYTES = 64 * 1024**2  # answers that the agent has asked for and does not take
_CHUNK_BYTES = 1 << 16
_SHOWN = 120
_KILL_AFTER_S = 3.0
NO_PARAMS = Raw(b"{}")


class ProtocolBroken(Exception):
    """The conversation cannot go on; the text says why."""


class Silent(Exception):
    """Nothing came before the deadline."""


class Gone(Exception):
    """The agent has ended, or closed its output, and everything that it wrote has been read."""


class ToldToStop(Exception):
    """We were sent SIGTERM; raised once."""


class RpcError(msgspec.Struct, frozen=True):
    """Why a request failed."""

    code: int
    message: str = ""
    data: Raw = Raw(b"null")


class WireMessage(msgspec.Struct, frozen=True):
    """A request (method and id), a notification (method alone) or a response (id alone)."""

    jsonrpc: str
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = NO_PARAMS
    result: Raw | UnsetType = UNSET
    error: RpcError | UnsetType = UNSET


class Wire:
    """Our end of the conversation with a started agent. SIGTERM and the agent's end wake it up."""

    def __init__(self, agent: subprocess.Popen[bytes]) -> None:
        assert agent.stdin is not None
        assert agent.stdout is not None
        self._agent = agent
        self._to, self._from = agent.stdin.fileno(), agent.stdout.fileno()
        self._out, self._partial = bytearray(), bytearray()
        self._lines: deque[bytes] = deque()
        self._stop_asked = self._stop_said = self._closed = False
        self._selector = selectors.DefaultSelector()
        self._woken = self._listen_to_signals()
        for descriptor in (self._to, self._from):
            os.set_blocking(descriptor, False)
        self._selector.register(self._from, selectors.EVENT_READ)

    def _listen_to_signals(self) -> int:
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._note_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler there must be, or nothing wakes us
        self._selector.register(reading, selectors.EVENT_READ)
        return reading

    def _note_stop(self, *_: object) -> None:
        self._stop_asked = True

    def send(self, message: dict[str, object]) -> None:
        """Queue a message; it is written while we wait for the next one."""
        self._out += msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
        if len(self._out) > MOST_UNREAD_BYTES:
            raise ProtocolBroken("it does not read what it asks for")

    def receive(self, deadline_s: float | None = None) -> WireMessage:
        """The next message; `deadline_s` is a time of the monotonic clock."""
        if deadline_s is not None and time.monotonic() > deadline_s:  # however much else it says
            raise Silent
        while not self._lines:
            self._wait(deadline_s)
        return _message(self._lines.popleft())

    def _wait(self, deadline_s: float | None) -> None:
        if self._stop_asked and not self._stop_said:
            self._stop_said = True
            raise ToldToStop
        if self._closed:
            raise Gone
        gone = self._agent.poll() is not None  # asked before reading: then all that it wrote is there to be read
        self._watch_output()
        left_s = None if deadline_s is None else deadline_s - time.monotonic()
        ready = {key.fd for key, _ in self._selector.select(0 if gone else left_s)}
        if self._woken in ready:
            _drain(self._woken)
        if self._to in ready:
            self._write()
        if self._from in ready:
            self._read()
        elif gone:
            self._closed = True  # a child of its own may hold the pipe open for ever
        if not ready and not gone:
            raise Silent

    def _watch_output(self) -> None:
        watched = self._to in self._selector.get_map()
        if self._out and not watched and self._to >= 0:
            self._selector.register(self._to, selectors.EVENT_WRITE)
        elif watched and not self._out:
            self._selector.unregister(self._to)

    def _write(self) -> None:
        try:
            written = os.write(self._to, self._out[:_CHUNK_BYTES])
            del self._out[:written]
        except BlockingIOError:
            pass
        except OSError:  # it closed its input; what it still says is read
            self._out.clear()

    def _read(self) -> None:
        try:
            data = os.read(self._from, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._closed = True
            return
        first, *rest = data.split(b"\n")
        self._partial += first
        for part in rest:
            if line := bytes(self._partial).strip():
                self._lines.append(line)
            self._partial = bytearray(part)
        if len(self._partial) > LARGEST_MESSAGE_BYTES:
            raise ProtocolBroken(f"it sent a message of more than {LARGEST_MESSAGE_BYTES // 1024**2} MiB")

    def close(self, patience_s: float) -> int | None:
        """Close its input, give it time to end, then end it and its group. Its exit status; negative for a signal."""
        assert self._agent.stdin is not None
        if self._to in self._selector.get_map():
            self._selector.unregister(self._to)
        with suppress(OSError):
            self._agent.stdin.close()
        for patience, signal_number in ((patience_s, signal.SIGTERM), (_KILL_AFTER_S, signal.SIGKILL)):
            if self._ended_within(patience):
                break
            with suppress(OSError):
                os.killpg(self._agent.pid, signal_number)
        if not self._ended_within(_KILL_AFTER_S):
            return None
        with suppress(OSError):  # children that it left behind
            os.killpg(self._agent.pid, signal.SIGKILL)
        return self._agent.returncode

    def _ended_within(self, patience_s: float) -> bool:
        """Whether it ended; what it still prints is thrown away, so that a full pipe does not hold it up."""
        deadline_s = time.monotonic() + patience_s
        while self._agent.poll() is None and (left_s := deadline_s - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                if not _drain(key.fd) and key.fd == self._from:
                    self._selector.unregister(self._from)
        return self._agent.poll() is not None


def _drain(descriptor: int) -> bool:
    """Throw away what is there; False when nothing will ever come again."""
    try:
        return bool(os.read(descriptor, _CHUNK_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _message(line: bytes) -> WireMessage:
    try:
        message = read_json(line, WireMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        raise ProtocolBroken(f"it wrote what is not a message of the protocol: {_shown(line)}") from None
    is_response = message.method is UNSET and (message.result is UNSET) != (message.error is UNSET)
    if message.jsonrpc != "2.0" or not (is_response or message.method is not UNSET):
        raise ProtocolBroken(f"it wrote what is not a message of the protocol: {_shown(line)}")
    return message


def _shown(line: bytes) -> str:
    text = line[:_SHOWN].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
