"""A model's server that echoes what it was sent: the key goes into one header, and never comes back.

The positive control is the proxy without keys to hide: the same server, the same requests, unfiltered.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest

from phasegate.core.agents.secrets import SecretMatcher
from phasegate.sandbox.egress_proxy import EgressProxy
from phasegate.sandbox.response_filter import ResponseFilter

KEY = "sk-real+key/with=signs-0123456789"
DUMMY = "sk--dummy-0011223344"
RAW = KEY.encode()
ENCODED = {
    "plain": RAW,
    "base64": base64.b64encode(RAW),
    "base64 inside": base64.b64encode(b"x:" + RAW),
    "url": quote(KEY, safe="").encode(),
    "hex": RAW.hex().encode(),
    "reversed": RAW[::-1],
    "in lines": RAW[:10] + b"\n" + RAW[10:],
    "url of a path": quote(KEY).encode(),
    "url in lower case": quote(KEY, safe="")
    .replace("%2B", "%2b")
    .replace("%2F", "%2f")
    .replace("%3D", "%3d")
    .encode(),
    "url of each letter": "".join(f"%{ord(letter):02X}" for letter in KEY).encode(),
    "json with escaped slashes": KEY.replace("/", "\\/").encode(),
    "json of another library": KEY.replace("+", "\\u002B").encode(),
    "json code points": "".join(f"\\u{ord(letter):04x}" for letter in KEY).encode(),
    "base64 reversed": base64.b64encode(b"xx" + RAW[::-1]),
    "hex reversed": RAW[::-1].hex().encode(),
    "by dots": ".".join(KEY).encode(),
    "a list of letters": json.dumps(list(KEY)).encode(),
    "in two strings": json.dumps([KEY[:15], KEY[15:]]).encode(),
    "hex by colons": RAW.hex(":").encode(),
    "hex codes": ", ".join(f"0x{byte:02X}" for byte in RAW).encode(),
    "html codes": "".join(f"&#x{byte:x};" for byte in RAW).encode(),
    "numbers": json.dumps(list(RAW)).encode(),
    "url twice": quote(quote(KEY, safe=""), safe="").encode(),
    "code points in upper case": "".join(f"\\u{byte:04X}" for byte in RAW).encode(),
    "base64 by dashes": "-".join(textwrap.wrap(base64.b64encode(RAW).decode(), 9)).encode(),
}
PACKED = gzip.compress(RAW)


class Upstream:
    """Answers one request a connection with the bytes that a test sets; keeps the request."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.parts: list[bytes] = []
        self.keeps_open = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += connection.recv(65536)
                self.requests.append(data)
                for part in self.parts:
                    connection.sendall(part)
                if self.keeps_open:
                    connection.recv(1)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with closing(Upstream()) as made:
        yield made


def ask(upstream: Upstream, *lines: str, keys: bool = True, path: str = "/v1") -> bytes:
    """What a job gets for a request with these header lines."""
    proxy = EgressProxy([], [upstream.url], {DUMMY: KEY} if keys else {})
    with socket.create_server(("127.0.0.1", 0)) as listener, closing(proxy):
        proxy.serve(listener)
        with socket.create_connection(listener.getsockname(), 10) as client:
            head = [f"GET /~0{path} HTTP/1.1", "Host: x", *lines]
            client.sendall("\r\n".join([*head, "", ""]).encode())
            answer = b""
            try:
                while part := client.recv(65536):
                    answer += part
            except ConnectionResetError:
                answer += b"<cut>"
            return answer


def respond(body: bytes, *lines: str) -> list[bytes]:
    head = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *lines, "", ""])
    return [head.encode() + body]


def chunked(*chunks: bytes) -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    framed = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    return [head, *framed, b"0\r\n\r\n"]


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (f"x-api-key: {DUMMY}", True),
        (f"Authorization: Bearer {DUMMY}", True),
        (f"X-Goog-Api-Key:{DUMMY}", True),
        (f"x-note: {DUMMY}", False),
        (f"cookie: a={DUMMY}", False),
        (f"authorization: Bearer {DUMMY} and more", False),
        (f"authorization: user={DUMMY}", False),
        (f"user-agent: {DUMMY}", False),
    ],
)
def test_the_key_is_put_only_into_the_header_that_authorises(
    upstream: Upstream, line: str, sent: bool
) -> None:
    upstream.parts = respond(b"ok")
    assert ask(upstream, line, path=f"/v1?key={DUMMY}").endswith(b"ok")
    request = upstream.requests[0]
    assert (KEY.encode() in request) is sent
    assert KEY.encode() not in request.split(b"\r\n")[0], "an address is echoed and logged"


def test_a_header_that_is_continued_on_the_next_line_is_refused(upstream: Upstream) -> None:
    assert b" 400 " in ask(upstream, "x-note: a", f" authorization: {DUMMY}")
    assert upstream.requests == []


@pytest.mark.parametrize("form", ENCODED)
def test_a_response_with_the_key_in_a_known_encoding_is_redacted(
    upstream: Upstream, form: str
) -> None:
    echoed = ENCODED[form]
    middle = len(echoed) // 2
    for parts in (
        respond(b"before " + echoed + b" after"),
        [part for one in respond(b"before " + echoed + b" after") for part in (one[:60], one[60:])],
        chunked(b"before ", echoed[:middle], echoed[middle:], b" after"),
        respond(b"before  after", f"x-echo: {KEY}"),
    ):
        upstream.parts = parts
        answer = ask(upstream, f"x-api-key: {DUMMY}")
        assert echoed not in answer
        assert RAW not in answer
        assert b"before " in answer
        assert b" after" in answer

    upstream.parts = respond(b"before " + echoed + b" after")
    assert echoed in ask(upstream, "x-api-key: none", keys=False), "the control"


@pytest.mark.parametrize("form", ENCODED)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_key_that_is_sent_in_small_parts_is_redacted_too(form: str, size: int) -> None:
    """A streamed response is searched for all that the search of collected work finds."""
    echoed = ENCODED[form]
    assert SecretMatcher([RAW]).has_secret(echoed), "the control"
    whole = b"HTTP/1.1 200 OK\r\n\r\nbefore " + echoed + b" after"
    made = ResponseFilter([RAW], is_head_request=False)
    seen = b"".join(made.feed(whole[at : at + size]) for at in range(0, len(whole), size))
    body = (seen + made.flush()).partition(b"\r\n\r\n")[2]
    assert body.startswith(b"before ")
    assert body.endswith(b" after")
    assert b"[redacted]" in body
    assert len(body) < len(b"before  after[redacted]") + 8, body


def test_a_compressed_or_broken_response_is_cut(upstream: Upstream) -> None:
    for parts in (
        respond(b"\x1f\x8b...", "Content-Encoding: gzip"),
        respond(PACKED),
        chunked(PACKED[:1], PACKED[1:]),
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + RAW],
        [b"SSH-2.0 " + RAW + b"\r\n\r\n"],
    ):
        upstream.parts = parts
        answer = ask(upstream, f"x-api-key: {DUMMY}")
        assert RAW not in answer
        assert b"\x1f\x8b" not in answer
    upstream.parts = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"]
    assert ask(upstream, f"x-api-key: {DUMMY}").endswith(b"<cut>"), "not taken for the whole"
    assert b"Accept-Encoding: identity" in upstream.requests[0]


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Encoding: gzip", "Content-Encoding: identity"],
        ["Content-Encoding : gzip"],
        ["Content-Encoding: identity, gzip"],
        ["x-a: b\nContent-Encoding: gzip"],
        ["x-a: b\rContent-Encoding: gzip"],
        ["x-a: b", " continued"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: gzip, chunked"],
    ],
)
def test_a_compressed_response_is_cut_however_its_head_says_it(
    upstream: Upstream, lines: list[str]
) -> None:
    upstream.parts = respond(PACKED, *lines)
    assert PACKED not in ask(upstream, f"x-api-key: {DUMMY}")
    assert PACKED in ask(upstream, "x-api-key: none", keys=False), "the control"


@pytest.mark.parametrize("size", [b"-5", b"+5", b"0x5", b"1_0", b"", b"f" * 30])
def test_a_chunk_without_a_valid_size_ends_the_response(size: bytes) -> None:
    """A negative size once kept the proxy busy for ever."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"\r\n" + RAW + b"\r\n0\r\n\r\n"
    with pytest.raises(ValueError, match="size"):
        ResponseFilter([RAW], is_head_request=False).feed(head + size + body)
    honest = ResponseFilter([RAW], is_head_request=False)
    seen = honest.feed(head + b"%x" % len(RAW) + body) + honest.flush()
    assert seen.endswith(b"[redacted]"), "the control"


def test_a_key_in_a_trailer_or_an_extension_of_a_chunk_does_not_reach_the_job(
    upstream: Upstream,
) -> None:
    upstream.parts = [
        b"HTTP/1.1 200 " + RAW + b"\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"2;note=" + RAW + b"\r\nok\r\n0\r\nx-key: " + RAW + b"\r\n\r\n",
    ]
    answer = ask(upstream, f"x-api-key: {DUMMY}")
    assert answer.endswith(b"ok")
    assert RAW not in answer
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert RAW in ask(upstream, "x-api-key: none", keys=False), "the control"


def test_a_response_ends_for_the_job_although_the_server_keeps_the_connection_open(
    upstream: Upstream,
) -> None:
    """Without this an agent waits for the end of each answer until its own timeout."""
    upstream.keeps_open = True
    for parts in (
        respond(b"all of it"),
        chunked(b"all ", b"of it"),
        [b"HTTP/1.1 204 No Content\r\n\r\n"],
    ):
        upstream.parts = parts
        assert not ask(upstream, f"x-api-key: {DUMMY}").endswith(b"<cut>")

    upstream.parts = respond(b"all of it")
    assert ask(upstream, f"x-api-key: {DUMMY}").endswith(b"all of it")


def test_an_honest_stream_arrives_as_it_is_sent() -> None:
    """Interim answers, events in chunks of any size, an answer to HEAD: nothing is held back at the end."""
    events = b"".join(b"data: %d\n\n" % number for number in range(200))
    framed = b"".join(chunked(*(events[at : at + 7] for at in range(0, len(events), 7))))
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    for size in (1, 3, 1000):
        made = ResponseFilter([RAW], is_head_request=False)
        whole = interim + framed
        seen = b"".join(made.feed(whole[at : at + size]) for at in range(0, len(whole), size))
        assert (seen + made.flush()).endswith(b"\r\n\r\n" + events)
        assert made.has_ended
    head = ResponseFilter([RAW], is_head_request=True)
    assert head.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert head.has_ended
