"""A small HTTP proxy, the only network access of a job: it forwards to allowed hosts.

A job with an egress proxy has its own network namespace that contains only a loopback device. Its
supervisor opens a listening socket there and passes it to this process. So the proxy runs outside
the namespace, answers inside of it, and the job can reach nothing else.

Two kinds of requests are served. `CONNECT host:443` opens a tunnel to an allowed host; its contents
are not inspected. A plain request below `/~0/` goes to the first route, an address from the
settings or from the harness table: there the proxy replaces the job's placeholder key with the real
key, in the header that authorizes and nowhere else, and removes the key from the response.
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import struct
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from phasegate.core.agents.harnesses import KEY_HEADERS
from phasegate.core.agents.hosts import (
    HTTPS_PORT,
    PUBLIC_HOSTS,
    is_host_allowed,
    is_own_address,
)
from phasegate.sandbox.response_filter import ResponseFilter

_MAX_CONNECTIONS = 64
_MAX_REPORTED_HOSTS = 200
_MAX_HEAD_BYTES = 64 * 1024
_HEAD_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 30.0
_CHUNK_BYTES = 64 * 1024
_REQUEST = re.compile(rb"([A-Z]{1,20}) (\S{1,16000}) HTTP/1\.[01]")
_TARGET = re.compile(r"\[?([A-Za-z0-9._:-]{1,253}?)\]?:([0-9]{1,5})")
_HOP_BY_HOP = (b"connection:", b"proxy-", b"keep-alive:", b"host:", b"upgrade:")
# A compressed response could not be searched for the key.
_NO_COMPRESSION = b"Accept-Encoding: identity"
# Ends a connection so that the client sees an error, not the end of a complete response.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ConnectionAttempt(NamedTuple):
    """A host that a job tried to reach; reported once."""

    host: str
    port: int
    allowed: bool


class EgressProxy:
    """The proxy of one job. `close` ends all open connections."""

    def __init__(
        self,
        hosts: Sequence[str],
        routes: Sequence[str] = (),
        # placeholder key -> real key
        keys: Mapping[str, str] | None = None,
        on_attempt: Callable[[ConnectionAttempt], None] = lambda attempt: None,
        # names of the headers that authorize, in lower case
        key_headers: Sequence[str] = KEY_HEADERS,
    ) -> None:
        self._hosts = tuple(hosts)
        self._on_attempt = on_attempt
        self._routes = [urlsplit(route) for route in routes]
        self._keys = {
            placeholder.encode(): key.encode() for placeholder, key in (keys or {}).items()
        }
        self._key_headers = tuple(name.encode() for name in key_headers)
        self._reported_attempts: set[ConnectionAttempt] = set()
        self._open_sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._free_slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._closed = False

    @property
    def refused_hosts(self) -> list[str]:
        with self._lock:
            refused = [attempt for attempt in self._reported_attempts if not attempt.allowed]
        return sorted({f"{attempt.host}:{attempt.port}" for attempt in refused})

    def serve(self, listener: socket.socket) -> None:
        """Serve connections to this socket in background threads, until `close`."""
        self._track_socket(listener)
        _create_thread(self._accept_connections, listener).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sockets = [*self._open_sockets]

        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

            with suppress(OSError):
                connection.close()

    # --- one connection

    def _accept_connections(self, listener: socket.socket) -> None:
        while True:
            self._free_slots.acquire()
            try:
                client = listener.accept()[0]
            except OSError:
                return

            _create_thread(self._handle_connection, client).start()

    def _handle_connection(self, client: socket.socket) -> None:
        try:
            with self._tracked_socket(client):
                self._handle_request(client)
        except (OSError, ValueError, UnicodeError):
            # The client or the upstream host disconnected: the job sees a closed connection.
            return
        finally:
            self._free_slots.release()

    def _handle_request(self, client: socket.socket) -> None:
        """Read a proxy request, and open a tunnel or forward it."""
        client.settimeout(_HEAD_TIMEOUT_S)
        head, body = _read_head(client)
        request = _REQUEST.fullmatch(head[0]) if head else None
        if request is None:
            _send_error(client, 400, "not a proxy request")
            return

        method = request[1].decode()
        target = request[2].decode("ascii")
        if method == "CONNECT":
            self._open_tunnel(client, target, body)
        else:
            self._handle_plain_request(client, method, target, head[1:], body)

    def _handle_plain_request(
        self, client: socket.socket, method: str, target: str, head: list[bytes], body: bytes
    ) -> None:
        """Forward a plain HTTP request if its host is allowed."""
        route, path, is_route = self._find_route(target)
        if route is None:
            url = urlsplit(target)
            self._refuse_host(client, url.hostname or target[:100], url.port or 80)
            return

        lines = [
            f"{method} {path} HTTP/1.1".encode(),
            f"Host: {route.netloc.rpartition('@')[2]}".encode(),
        ]
        # A continued line would become part of another header.
        if any(line.startswith((b" ", b"\t")) for line in head):
            _send_error(client, 400, "a header is continued on the next line")
            return

        headers = [line for line in head if not line.lower().startswith(_HOP_BY_HOP)]
        response_filter = None
        # The key is sent to a configured route only, never to a host that is merely allowed.
        if is_route and self._keys:
            headers = [self._insert_key(line) for line in headers]
            headers = [line for line in headers if not line.lower().startswith(b"accept-encoding:")]
            headers.append(_NO_COMPRESSION)
            response_filter = ResponseFilter(self._keys.values(), is_head_request=method == "HEAD")

        new_head = b"\r\n".join([*lines, *headers, b"Connection: close", b"", b""])
        self._forward_request(client, route, new_head + body, response_filter, is_route=is_route)

    def _find_route(self, target: str) -> tuple[SplitResult | None, str, bool]:
        """Return the route, the path to request and whether keys may be inserted.

        The target is a path below a route's number, or an unencrypted URL of an allowed host. The
        route is None for any other target.
        """
        numbered = re.match(r"/~([0-9]{1,3})(?=/|$)", target)
        if numbered and int(numbered[1]) < len(self._routes):
            return self._routes[int(numbered[1])], target[numbered.end() :] or "/", True

        url = urlsplit(target)
        if (
            url.scheme == "http"
            and url.hostname
            and is_host_allowed(url.hostname, url.port or 80, self._hosts)
        ):
            return url, url._replace(scheme="", netloc="").geturl() or "/", False

        return None, "", False

    def _insert_key(self, line: bytes) -> bytes:
        """Replace the placeholder with the real key in an authorization header.

        The placeholder must be the whole value, optionally after a scheme such as `Bearer`. It is
        not replaced elsewhere, such as in a URL, because a server might echo the key.
        """
        name, colon, value = line.partition(b":")
        if name.lower() not in self._key_headers:
            return line

        scheme, space, credential = value.strip(b" \t").rpartition(b" ")
        if credential not in self._keys or not (scheme.isalpha() or not space):
            return line
        return name + colon + b" " + scheme + space + self._keys[credential]

    def _refuse_host(self, client: socket.socket, host: str, port: int) -> None:
        self._report_attempt(ConnectionAttempt(host, port, False))
        _send_error(client, 403, f"{host}:{port} is not an allowed host of this agent")

    def _open_tunnel(self, client: socket.socket, target: str, early_data: bytes) -> None:
        """Relay bytes between client and an allowed host until either closes."""
        host = target[:100]
        port = 0
        if parsed := _TARGET.fullmatch(target):
            host = parsed[1]
            port = int(parsed[2])

        if not is_host_allowed(host, port, self._hosts):
            self._refuse_host(client, host, port)
            return

        upstream = self._connect_upstream(client, host, port, "https")
        if upstream is None:
            return

        with self._tracked_socket(upstream):
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            upstream.sendall(early_data)
            downstream = _create_thread(_copy_stream, upstream, client)
            downstream.start()
            _copy_stream(client, upstream)
            downstream.join()

    def _forward_request(
        self,
        client: socket.socket,
        route: SplitResult,
        request: bytes,
        response_filter: ResponseFilter | None,
        *,
        is_route: bool,
    ) -> None:
        """Send a request upstream and relay the filtered response."""
        encrypt = route.scheme == "https"
        host = route.hostname or ""
        port = route.port or (HTTPS_PORT if encrypt else 80)
        upstream = self._connect_upstream(
            client, host, port, route.scheme, encrypt=encrypt, is_route=is_route
        )
        if upstream is None:
            return

        with self._tracked_socket(upstream):
            upstream.sendall(request)
            _relay_both_ways(client, upstream, response_filter)

    def _connect_upstream(
        self,
        client: socket.socket,
        host: str,
        port: int,
        scheme: str,
        *,
        encrypt: bool = False,
        is_route: bool = False,
    ) -> socket.socket | None:
        """Connect to an allowed host; on failure send the job an error and return None.

        `is_route`: the user configured this address. It may be on this machine.
        """
        is_public_only = PUBLIC_HOSTS in self._hosts and not is_route
        try:
            addresses = _resolve_addresses(host, port, scheme) if is_public_only else []
            if any(is_own_address(address) for address in addresses):
                self._refuse_host(client, host, port)
                return None

            self._report_attempt(ConnectionAttempt(host, port, True))
            upstream = _connect(host, port, scheme, addresses)
            if encrypt:
                upstream = _create_tls_context().wrap_socket(upstream, server_hostname=host)
        except OSError as error:
            _send_error(client, 502, f"{host}:{port} cannot be reached: {error}")
            return None

        client.settimeout(None)
        upstream.settimeout(None)

        return upstream

    # --- open sockets and reported attempts

    def _report_attempt(self, attempt: ConnectionAttempt) -> None:
        """Report a refused host once."""
        with self._lock:
            if (
                self._closed
                or attempt in self._reported_attempts
                or len(self._reported_attempts) >= _MAX_REPORTED_HOSTS
            ):
                return

            self._reported_attempts.add(attempt)
            # Under the lock: nothing is reported after `close`.
            self._on_attempt(attempt)

    def _track_socket(self, connection: socket.socket) -> None:
        with self._lock:
            if self._closed:
                connection.close()
                raise OSError("closed")
            self._open_sockets.add(connection)

    @contextmanager
    def _tracked_socket(self, connection: socket.socket) -> Iterator[None]:
        self._track_socket(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open_sockets.discard(connection)

            with suppress(OSError):
                connection.close()


def _create_thread(target: Callable[..., None], *sockets: socket.socket) -> threading.Thread:
    return threading.Thread(target=target, args=sockets, name="egress-proxy", daemon=True)


def _read_head(client: socket.socket) -> tuple[list[bytes], bytes]:
    """Read the head of a request; return its lines, and the bytes received after it."""
    data = b""

    while b"\r\n\r\n" not in data:
        part = client.recv(_CHUNK_BYTES)
        data += part
        if not part or len(data) > _MAX_HEAD_BYTES:
            return [], b""

    head, _, body = data.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body


def _send_error(client: socket.socket, status: int, text: str) -> None:
    body = f"phasegate: {text}\n".encode("utf-8", "replace")
    reason = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    )
    client.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)


def _copy_stream(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)

    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)

    with suppress(OSError):
        source.shutdown(socket.SHUT_RD)


def _relay_both_ways(
    client: socket.socket, upstream: socket.socket, response_filter: ResponseFilter | None
) -> None:
    """Copy both directions in one thread, since a TLS connection must not be used by two threads.

    Return when the response ends. A response that cannot be searched for keys is cut.
    """
    open_sources = [client, upstream]

    while True:
        has_decrypted_data = isinstance(upstream, ssl.SSLSocket) and upstream.pending() > 0
        if has_decrypted_data:
            ready = [upstream]
        else:
            ready = select.select(open_sources, [], [])[0]

        for source in ready:
            data = source.recv(_CHUNK_BYTES)
            if source is upstream:
                if _pass_response(client, data, response_filter):
                    return
            elif data:
                upstream.sendall(data)
            else:
                open_sources.remove(client)


def _pass_response(
    client: socket.socket, data: bytes, response_filter: ResponseFilter | None
) -> bool:
    """Send a part of the response to the job; return True after its last part.

    The last part is empty, or the one that completes the response: a server may keep the connection
    open although we asked it to close it, and the job learns of the end only by our closing.
    """
    if response_filter is None:
        client.sendall(data)
        return not data

    try:
        client.sendall(response_filter.feed(data))
        is_last = not data or response_filter.has_ended
        if is_last:
            client.sendall(response_filter.flush())
        is_cut = is_last and not response_filter.may_end
    except ValueError:
        is_cut = is_last = True

    if is_cut:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    return is_last


def _connect(host: str, port: int, scheme: str, addresses: list[str]) -> socket.socket:
    """Connect to a host, through the proxy from the user's environment if one is set.

    `addresses` are those that were checked: its name must not lead to others now.
    """
    proxy = find_proxy(host, scheme, os.environ)
    if not proxy:
        target = addresses[0] if addresses else host
        upstream = socket.create_connection((target, port), _CONNECT_TIMEOUT_S)
        # An address of the machine's own network card: nothing was sent yet.
        if addresses and upstream.getsockname()[0] == upstream.getpeername()[0]:
            upstream.close()
            raise OSError("it is this machine")
        return upstream

    url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    upstream = socket.create_connection((url.hostname or "", url.port or 80), _CONNECT_TIMEOUT_S)
    lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
    if url.username:
        credentials = f"{unquote(url.username)}:{unquote(url.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(credentials.encode()).decode()}")

    upstream.sendall("\r\n".join([*lines, "", ""]).encode())
    head, _ = _read_head(upstream)
    if not head or head[0].split(b" ")[1:2] != [b"200"]:
        upstream.close()
        answer = head[0].decode("ascii", "replace") if head else "nothing"
        raise OSError(f"the proxy answered {answer}")

    return upstream


def _resolve_addresses(host: str, port: int, scheme: str) -> list[str]:
    """Return the addresses of a host; none if only the user's proxy can resolve its name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        if find_proxy(host, scheme, os.environ):
            return []
        raise
    return [str(one[4][0]) for one in found]


def find_proxy(host: str, scheme: str, env: Mapping[str, str]) -> str:
    """Return the proxy that the user's environment sets for this host; empty if none."""

    def read_variable(name: str) -> str:
        return env.get(name) or env.get(name.upper(), "")

    exceptions = read_variable("no_proxy").lower().split(",")
    domains = [name.strip().lstrip("*.") for name in exceptions if name.strip()]
    for domain in domains:
        if domain == "" or host.lower() == domain or host.lower().endswith(f".{domain}"):
            return ""

    return read_variable(f"{scheme}_proxy") or read_variable("all_proxy")


def _create_tls_context() -> ssl.SSLContext:
    """Trust the system's certificates and those that the user's environment adds."""
    context = ssl.create_default_context()
    extra = os.environ.get("NODE_EXTRA_CA_CERTS", "")
    if extra and os.path.isfile(extra):
        context.load_verify_locations(extra)
    return context
