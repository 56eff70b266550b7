"""Who reaches the board: the right host, a page of the board, a session; everything else is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phasegate.interfaces.board.access import MAX_BODY_BYTES, AccessMiddleware, BoardCredentials

Headers = dict[bytes, str]


class Board:
    """A board that answers 200 with the body that it was sent."""

    def __init__(self) -> None:
        self.credentials = BoardCredentials(8123)
        self.bodies: list[bytes] = []

    async def app(self, _scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def good_headers(self) -> Headers:
        credentials = self.credentials
        return {
            b"host": "127.0.0.1:8123",
            b"origin": "http://127.0.0.1:8123",
            b"sec-fetch-site": "same-origin",
            b"x-phasegate": credentials.page_secret,
            b"cookie": f"{credentials.cookie_name}={credentials.session_token}",
        }

    def request(
        self,
        headers: Headers,
        method: str = "POST",
        path: str = "/",
        query: str = "",
        parts: tuple[bytes, ...] = (b"",),
    ) -> tuple[int, dict[bytes, bytes]]:
        sent: list[Any] = []
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(key, value.encode("latin-1")) for key, value in headers.items()],
        }
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        messages[-1]["more_body"] = False

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(AccessMiddleware(self.app, self.credentials)(scope, receive, send))
        return sent[0]["status"], dict(sent[0]["headers"])


def test_a_page_of_the_board_reaches_it_with_its_whole_body() -> None:
    board = Board()
    assert board.request(board.good_headers(), parts=(b"a", b"b"))[0] == 200
    assert board.bodies == [b"ab"]


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        (b"host", "evil.example:8123", 403),
        (b"host", "127.0.0.1:8124", 403),
        (b"host", "127.0.0.1", 403),
        (b"sec-fetch-site", "cross-site", 403),
        (b"sec-fetch-site", "same-site", 403),
        (b"origin", "http://evil.example", 403),
        (b"origin", "http://localhost:8123", 403),
        (b"origin", "null", 403),
        (b"x-phasegate", "guess", 403),
        (b"x-phasegate", "\xe9", 403),
        (b"cookie", "phasegate_8123=guess", 401),
        (b"cookie", "phasegate_8124=guess; broken", 401),
    ],
)
def test_one_wrong_header_is_enough_to_be_refused(name: bytes, value: str, status: int) -> None:
    board = Board()
    assert board.request({**board.good_headers(), name: value})[0] == status
    assert board.bodies == []


@pytest.mark.parametrize("name", [b"host", b"origin", b"x-phasegate", b"cookie"])
def test_a_missing_header_is_refused(name: bytes) -> None:
    board = Board()
    headers = {key: value for key, value in board.good_headers().items() if key != name}
    assert board.request(headers)[0] in (401, 403)
    assert board.bodies == []


def test_reading_needs_a_session_and_no_page_secret() -> None:
    board = Board()
    headers = board.good_headers()
    del headers[b"origin"], headers[b"x-phasegate"]
    assert board.request(headers, "GET")[0] == 200
    del headers[b"cookie"]
    assert board.request(headers, "GET")[0] == 401


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((b"x" * MAX_BODY_BYTES,), 200),
        ((b"x" * MAX_BODY_BYTES, b"x"), 413),
    ],
)
def test_a_body_that_is_too_long_is_refused(parts: tuple[bytes, ...], status: int) -> None:
    board = Board()
    assert board.request(board.good_headers(), parts=parts)[0] == status


def test_a_link_opens_one_session(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board()
    host = {b"host": "127.0.0.1:8123"}
    query = board.credentials.sign_in_url.partition("?")[2]
    status, headers = board.request(host, "GET", "/enter", query)
    assert status == 303
    assert headers[b"set-cookie"].endswith(b"; HttpOnly; SameSite=Strict; Path=/")
    assert board.request(host, "GET", "/enter", query)[0] == 401
    assert board.credentials.sign_in_url in capsys.readouterr().out
    for wrong in ("", "token=", "token=x"):
        assert board.request(host, "GET", "/enter", wrong)[0] == 401


def test_every_answer_also_a_refusal_has_the_security_headers() -> None:
    board = Board()
    for headers in (board.good_headers(), {}):
        answered = board.request(headers)[1]
        assert b"default-src 'none'" in answered[b"content-security-policy"]
        assert answered[b"x-content-type-options"] == b"nosniff"
