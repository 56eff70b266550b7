"""Access control of the board: a refused request reaches no page and no order.

A browser sends requests on behalf of any page, and host names can be made to resolve to 127.0.0.1.
So the host must be the board's, a change must come from a page of the board, and every request
needs the session that was opened with a one-time link from the terminal.
"""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 64_000
PAGE_SECRET_HEADER = b"x-phasegate"
_SAFE_METHODS = ("GET", "HEAD")
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = (
    (b"content-security-policy", _CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class BoardCredentials:
    """The secrets of one board: one-time sign-in token, session token and page secret.

    They are in no file and no environment: an agent on this machine may reach the port.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.one_time_token = secrets.token_urlsafe(32)
        self.session_token = secrets.token_urlsafe(32)
        self.page_secret = secrets.token_urlsafe(32)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sign_in_url(self) -> str:
        """Return the link that signs in one browser, once."""
        return f"{self.url}/enter?token={self.one_time_token}"

    @property
    def cookie_name(self) -> str:
        """Return the cookie name with the port: cookies of two boards on one host must not mix."""
        return f"phasegate_{self.port}"

    def consume_token(self, token: str) -> bool:
        """Consume the one-time token; True if it matches."""
        if not _is_same_secret(token, self.one_time_token):
            return False
        self.one_time_token = secrets.token_urlsafe(32)
        return True


class AccessMiddleware:
    """The outermost ASGI application: checks each request before the board sees it."""

    def __init__(self, app: ASGIApp, credentials: BoardCredentials) -> None:
        self._app = app
        self._credentials = credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request before the board sees it, and add security headers."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            # The board has no websockets: the server refuses them
            return None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_SECURITY_HEADERS]

            await send(message)

        headers = _Headers(scope["headers"])
        if refusal := self._check_request(scope, headers):
            return await _send_text(send_with_headers, *refusal)
        if scope["path"] == "/enter":
            return await self._open_session(scope, send_with_headers)

        if not _is_same_secret(
            headers.get_cookie(self._credentials.cookie_name), self._credentials.session_token
        ):
            return await _send_text(
                send_with_headers,
                401,
                "Open the link that `phasegate board` printed in its terminal.",
            )

        body = b"" if scope["method"] in _SAFE_METHODS else await _read_body(receive)
        if body is None:
            return await _send_text(send_with_headers, 413, "The request is too long.")

        return await self._app(scope, _replay_body(body, receive), send_with_headers)

    def _check_request(self, scope: Scope, headers: _Headers) -> tuple[int, str] | None:
        """Return status and text of a refusal, or None if the request is allowed."""
        if headers.get_all(b"host") not in (
            [f"127.0.0.1:{self._credentials.port}"],
            [f"localhost:{self._credentials.port}"],
        ):
            return 403, "This is not the address of the board."

        if headers.get_all(b"sec-fetch-site") not in ([], ["same-origin"], ["none"]):
            return 403, "The request comes from another site."
        if scope["method"] in _SAFE_METHODS:
            return None
        if headers.get_all(b"origin") != [f"http://{headers.get_all(b'host')[0]}"]:
            return 403, "The request comes from another site."

        if not _is_same_secret(
            next(iter(headers.get_all(PAGE_SECRET_HEADER)), ""), self._credentials.page_secret
        ):
            return 403, "The request did not come from a page of the board. Reload the page."

        return None

    async def _open_session(self, scope: Scope, send: Send) -> None:
        """Consume the sign-in token, set the session cookie and redirect."""
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not self._credentials.consume_token(token):
            return await _send_text(
                send, 401, "This link was already used. The board's terminal shows a new one."
            )

        credentials = self._credentials
        print(f"opened in a browser; for another one: {credentials.sign_in_url}", flush=True)
        session = f"{credentials.cookie_name}={credentials.session_token}"
        cookie = f"{session}; HttpOnly; SameSite=Strict; Path=/"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
        await send({"type": "http.response.start", "status": 303, "headers": headers})

        return await send({"type": "http.response.body", "body": b""})


class _Headers:
    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def get_all(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for key, value in self._raw if key == name]

    def get_cookie(self, name: str) -> str:
        try:
            cookie = SimpleCookie("; ".join(self.get_all(b"cookie"))).get(name)
        except CookieError:
            return ""

        return cookie.value if cookie else ""


def _is_same_secret(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


async def _read_body(receive: Receive) -> bytes | None:
    """Read the whole body, or return None if it is too long, or the client has disconnected."""
    body: bytes = b""

    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None

        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return body


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields the body again, then later client messages."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if parts:
            return parts.pop()
        return await receive()

    return replay


async def _send_text(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
