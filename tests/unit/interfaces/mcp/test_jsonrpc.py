"""The server on two streams: what is answered, and with what."""

from __future__ import annotations

import io
import json
from threading import Event

import pytest

from phasegate.interfaces.mcp.jsonrpc import MAX_LINE_BYTES, Call, McpConnection, McpError


def serve(*lines: bytes) -> tuple[list[dict[str, object]], list[Call]]:
    """What a client receives for these lines, and the calls that were made."""
    sink, calls = io.BytesIO(), []

    def handle(call: Call) -> object:
        calls.append(call)
        if call.method == "fail":
            raise McpError(-32602, "no such thing", {"hint": "x"})
        if call.method == "break":
            raise RuntimeError("secret detail")
        call.send_progress("half")
        return {"params": call.params}

    McpConnection(io.BytesIO(b"\n".join((*lines, b""))), sink).serve(handle)
    return [json.loads(line) for line in sink.getvalue().splitlines()], calls


def message(**fields: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


def test_a_request_is_answered_under_its_id() -> None:
    [answer], _ = serve(message(id="a", method="do", params={"x": 1}))
    assert (answer["id"], answer["result"]) == ("a", {"params": {"x": 1}})


def test_progress_is_sent_only_to_who_asked_for_it() -> None:
    told, _ = serve(message(id=1, method="do", params={"_meta": {"progressToken": "t"}}))
    assert [one.get("method") for one in told] == ["notifications/progress", None]
    assert told[0]["params"] == {"progressToken": "t", "progress": 1, "message": "half"}
    for meta in ({}, {"progressToken": None}, {"progressToken": [1]}, "t"):
        silent, _ = serve(message(id=1, method="do", params={"_meta": meta}))
        assert [one.get("method") for one in silent] == [None]


def test_an_error_says_what_was_wrong_and_a_bug_says_only_its_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [refused], _ = serve(message(id=1, method="fail"))
    assert refused["error"] == {"code": -32602, "message": "no such thing", "data": {"hint": "x"}}
    [broken], _ = serve(message(id=2, method="break"))
    assert "secret detail" not in json.dumps(broken)
    assert "RuntimeError" in json.dumps(broken)
    assert "secret detail" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        message(id=1, method="do", params=[1]),
        message(id=None, method="do"),
        message(id=1.5, method="do"),
        b"x" * (MAX_LINE_BYTES + 5),
    ],
)
def test_a_malformed_line_is_an_error_and_the_next_one_is_read(line: bytes) -> None:
    first, second = serve(line, message(id=9, method="do"))[0]
    assert "error" in first
    assert (second["id"], "result" in second) == (9, True)


def test_empty_lines_notifications_and_answers_to_nothing_are_not_answered() -> None:
    told, calls = serve(
        b"  ",
        message(method="notifications/initialized"),
        message(id="phasegate-1", result={}),
        message(method="notifications/cancelled", params={"requestId": 5}),
    )
    assert (told, calls) == ([], [])


class Pipe(io.BytesIO):
    """Lines that are given one by one; each waits for its event."""

    def __init__(self, *lines: tuple[Event | None, bytes]) -> None:
        super().__init__()
        self._lines = iter(lines)

    def readline(self, _size: int | None = -1) -> bytes:
        wait_for, line = next(self._lines, (None, b""))
        if wait_for is not None:
            assert wait_for.wait(60)
        return line


def test_a_cancelled_request_gets_no_answer_and_an_id_in_use_is_refused() -> None:
    started, sink = Event(), io.BytesIO()

    def handle(call: Call) -> object:
        started.set()
        assert call.cancelled.wait(60)
        return "too late"

    source = Pipe(
        (None, message(id=1, method="do") + b"\n"),
        (started, message(id=1, method="do") + b"\n"),
        (None, message(method="notifications/cancelled", params={"requestId": 1}) + b"\n"),
    )
    McpConnection(source, sink).serve(handle)
    [refused] = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert "in use" in refused["error"]["message"]
