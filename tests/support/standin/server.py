"""The server: it keeps every request whole, finds the turn that is due, and plays it."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from support.standin.dialects import INPUT_TOKENS, OUTPUT_TOKENS, Dialect, Json, dialect_of
from support.standin.turns import (
    Cut,
    Fail,
    Garble,
    Hang,
    Move,
    Say,
    Script,
    Shell,
    Tool,
    Turn,
    Write,
    call_for,
)

NOT_OFFERED = "There is no tool for that."
ASIDE = Say(
    "A title"
)  # agents ask for titles and summaries besides: without tools, and never part of the scenario
LONG = Say(
    " ".join(f"Sentence {number} is one of many." for number in range(100))
)  # to be broken off
PATIENCE_S = 120.0
_READ, _WRITTEN = (re.compile(rb": %d\b" % count) for count in (INPUT_TOKENS, OUTPUT_TOKENS))
_WORKS_IN = re.compile(
    "working in the directory: (/.+)"
)  # said by an agent that takes absolute paths only


class Seen(NamedTuple):
    """A request as it arrived, whole."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: Json

    @property
    def strings(self) -> list[str]:
        """Every text in the body, decoded."""
        return [*_strings(self.body)]

    @property
    def text(self) -> str:
        return "\n".join(self.strings)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


class Standin:
    """A model on 127.0.0.1 for as long as the block lasts. Of several scripts, the first that fits is played."""

    def __init__(
        self, *turns: Turn | Script, toolless: bool = False, counts_oddly: bool = False
    ) -> None:
        self.toolless = toolless  # the agent offers no tools: what it asks is no aside
        self.counts_oddly = counts_oddly  # of the tokens that it reads it knows no number, of those it writes a fraction
        scripts = [turn for turn in turns if isinstance(turn, Script)]
        loose = tuple(turn for turn in turns if not isinstance(turn, Script))
        self.scripts = [*scripts, *([Script(loose)] if loose else [])]
        self.seen: list[Seen] = []
        self.let_go = threading.Event()  # ends every hang
        self.hanging = threading.Event()  # set as soon as somebody waits in vain
        self._failures: Counter[Fail] = Counter()
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"standin": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def questions(self) -> list[Seen]:
        """The requests of the agent's own conversation: those that offer tools."""
        return [
            seen
            for seen in self.seen
            if (dialect := dialect_of(seen.path)) and dialect.offered(seen.body)
        ]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, seen: Seen, dialect: Dialect | None) -> Turn:
        """Keep a request, and say what to do about it."""
        with self._lock:
            self.seen.append(seen)
            if dialect is None or not (self.toolless or dialect.offered(seen.body)):
                return ASIDE
            text = seen.text
            script = next(
                (script for script in self.scripts if script.fits(text)), Script((ASIDE,))
            )
            return (
                script.turns(text)
                if callable(script.turns)
                else self._due(script.turns, dialect.results(seen.body))
            )

    def _due(self, turns: tuple[Turn, ...], results: int) -> Turn:
        """As many turns are over as the conversation holds tool results; failures that are used up are left out."""
        for turn in turns:
            if isinstance(turn, Fail) and turn.times is not None:
                if results == 0 and self._failures[turn] < turn.times:
                    self._failures[turn] += 1
                    return turn
            elif results == 0:
                return turn
            else:
                results -= 1
        return turns[-1]


class _Handler(BaseHTTPRequestHandler):
    standin: Standin
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Silence: all requests are kept."""

    def do_GET(self) -> None:
        self.standin.take(Seen(self.path, dict(self.headers), b"", {}), None)
        self._send(404, {"error": {"message": "there is nothing here"}})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        try:
            seen = self._seen()
            dialect = dialect_of(self.path)
            turn = self.standin.take(seen, dialect)
            if dialect is None:
                return self._send(404, {"error": {"message": "there is nothing here"}})
            return self._play(turn, seen, dialect)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the agent was ended meanwhile

    def _seen(self) -> Seen:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        return Seen(self.path, dict(self.headers), raw, body if isinstance(body, dict) else {})

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _play(self, turn: Turn, seen: Seen, dialect: Dialect) -> None:
        match turn:
            case Fail(status, retry_after_s):
                said = f"{'Rate limit reached: ' * (status == 429)}the stand-in says {status}"
                error = dialect.error(status, said, retry_after_s)
                return self._send(status, error, retry_after_s)
            case Hang():
                self.standin.hanging.set()
                self.standin.let_go.wait(PATIENCE_S)
                self.close_connection = True
                return None
            case Cut(as_if_whole):
                frames = dialect.frames(LONG)
                return self._stream(
                    frames[: len(frames) // 2], whole=as_if_whole
                )  # also where none was asked for
            case Garble():
                frames = dialect.frames(LONG)
                half = len(frames) // 2
                return self._stream(
                    [*frames[:half], b'data: {"type": "\xff\x00 <html>502\n\n', *frames[half:]]
                )
        move = _move(turn, seen, dialect)
        if dialect.streams(self.path, seen.body):
            return self._stream(dialect.frames(move))
        return self._send(200, dialect.whole(move))

    def _send(self, status: int, document: Json, retry_after_s: int | None = None) -> None:
        content = self._counted(json.dumps(document).encode())
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        if retry_after_s is not None:
            self.send_header("retry-after", str(retry_after_s))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, frames: list[bytes], *, whole: bool = True) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for frame in map(self._counted, frames):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(frame), frame))
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not whole

    def _counted(self, said: bytes) -> bytes:
        return (
            _WRITTEN.sub(b": 7.9", _READ.sub(b": null", said))
            if self.standin.counts_oddly
            else said
        )


def _move(turn: Turn, seen: Seen, dialect: Dialect) -> Move:
    if isinstance(turn, Write) and (folder := _WORKS_IN.search(seen.text)):
        turn = turn._replace(path=f"{folder[1]}/{turn.path}")
    if isinstance(turn, Write | Shell | Tool):
        return call_for(turn, dialect.offered(seen.body)) or Say(NOT_OFFERED)
    assert isinstance(turn, Say)
    return Say(turn.text(seen.text)) if callable(turn.text) else turn
