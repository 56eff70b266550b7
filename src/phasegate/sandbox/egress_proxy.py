"""A job's only way to the network.

A small proxy of ours that lets through the hosts that are listed.

A job with a broker has a network of its own, with nothing in it but a loopback. Its warden makes a
listening socket there and hands it out to us: so we answer inside of that network, from outside,
and the job can reach nothing else.

Two kinds of requests are served. `CONNECT host:443` is a tunnel to a listed host: what is inside of
it we do not see. A plain request below `/~0/` goes to the first route, an address that the person
or the agent's row names: there the key is put in, in the place of the dummy that the job holds.
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from phasegate.core.agents.hosts import HTTPS_PORT, is_host_allowed

_MAX_CONNECTIONS = 64
_MAX_REPORTED_HOSTS = 200
_MAX_HEAD_BYTES = 64 * 1024
_HEAD_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 30.0
_CHUNK_BYTES = 64 * 1024
_REQUEST = re.compile(rb"([A-Z]{1,20}) (\S{1,16000}) HTTP/1\.[01]")
_TARGET = re.compile(r"\[?([A-Za-z0-9._:-]{1,253}?)\]?:([0-9]{1,5})")
_HOP_BY_HOP = (b"connection:", b"proxy-", b"keep-alive:", b"host:", b"upgrade:")


class ConnectionAttempt(NamedTuple):
    """A host that a job asked for, told once."""

    host: str
    port: int
    allowed: bool


class EgressProxy:
    """Serves one job. `close` ends all that is open."""

    def __init__(
        self,
        hosts: Sequence[str],
        routes: Sequence[str] = (),
        # The real one for each dummy
        keys: Mapping[str, str] | None = None,
        on_attempt: Callable[[ConnectionAttempt], None] = lambda reached: None,
    ) -> None:
        self._hosts = tuple(hosts)
        self._on_attempt = on_attempt
        self._routes = [urlsplit(route) for route in routes]
        self._keys = {dummy.encode(): key.encode() for dummy, key in (keys or {}).items()}
        self._reported_attempts: set[ConnectionAttempt] = set()
        self._open_sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._free_slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._closed = False

    @property
    def refused_hosts(self) -> list[str]:
        with self._lock:
            return sorted(
                {f"{one.host}:{one.port}" for one in self._reported_attempts if not one.allowed}
            )

    def serve(self, listener: socket.socket) -> None:
        """Answer what comes to this socket, in threads of our own, until `close`."""
        self._track_socket(listener)
        threading.Thread(
            target=self._accept_connections, args=(listener,), name="broker", daemon=True
        ).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sockets = [*self._open_sockets]

        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

            with suppress(OSError):
                one.close()

    # --- one connection

    def _accept_connections(self, listener: socket.socket) -> None:
        while True:
            self._free_slots.acquire()
            try:
                client = listener.accept()[0]
            except OSError:
                return

            threading.Thread(
                target=self._handle_connection, args=(client,), name="broker", daemon=True
            ).start()

    def _handle_connection(self, client: socket.socket) -> None:
        try:
            with self._tracked_socket(client):
                self._handle_request(client)
        except (OSError, ValueError, UnicodeError):
            # Whoever asked has gone, or what it asked for has: the job sees a closed connection
            return
        finally:
            self._free_slots.release()

    def _handle_request(self, client: socket.socket) -> None:
        client.settimeout(_HEAD_TIMEOUT_S)
        head, body = _read_head(client)
        if head:
            asked = _REQUEST.fullmatch(head[0])
        else:
            asked = None

        if asked is None:
            _send_error(client, 400, "this is not a request that a proxy answers")
        elif asked[1] == b"CONNECT":
            self._open_tunnel(client, asked[2].decode("ascii"), body)
        else:
            self._handle_plain_request(
                client, asked[1].decode(), asked[2].decode("ascii"), head[1:], body
            )

    def _handle_plain_request(
        self, client: socket.socket, method: str, target: str, head: list[bytes], body: bytes
    ) -> None:
        route, path, is_ours = self._find_route(target)
        if route is None:
            asked = urlsplit(target)
            self._refuse_host(client, asked.hostname or target[:100], asked.port or 80)
            return

        lines = [
            f"{method} {path} HTTP/1.1".encode(),
            f"Host: {route.netloc.rpartition('@')[2]}".encode(),
        ]
        lines += [line for line in head if not line.lower().startswith(_HOP_BY_HOP)]
        whole = b"\r\n".join([*lines, b"Connection: close", b"", b""])
        # The key goes to an address that the person set, never to a host that is merely allowed.
        self._forward_request(
            client, route, (self._insert_keys(whole) if is_ours else whole) + body
        )

    def _find_route(self, target: str) -> tuple[SplitResult | None, str, bool]:
        """The route below whose number a path lies, or a listed host that is asked for without
        encryption.
        """
        found = re.match(r"/~([0-9]{1,3})(?=/|$)", target)
        if found and int(found[1]) < len(self._routes):
            return self._routes[int(found[1])], target[found.end() :] or "/", True

        asked = urlsplit(target)
        if (
            asked.scheme == "http"
            and asked.hostname
            and is_host_allowed(asked.hostname, asked.port or 80, self._hosts)
        ):
            return asked, asked._replace(scheme="", netloc="").geturl() or "/", False

        return None, "", False

    def _insert_keys(self, head: bytes) -> bytes:
        for dummy, key in self._keys.items():
            head = head.replace(dummy, key)
        return head

    def _refuse_host(self, client: socket.socket, host: str, port: int) -> None:
        self._report_attempt(ConnectionAttempt(host, port, False))
        _send_error(client, 403, f"{host}:{port} is not among the hosts of this agent")

    def _open_tunnel(self, client: socket.socket, target: str, early: bytes) -> None:
        found = _TARGET.fullmatch(target)
        if found:
            host, port = (found[1], int(found[2]))
        else:
            host, port = (target[:100], 0)

        if not is_host_allowed(host, port, self._hosts):
            self._refuse_host(client, host, port)
        elif upstream := self._connect_upstream(client, host, port, "https", encrypt=False):
            with self._tracked_socket(upstream):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                upstream.sendall(early)
                back = threading.Thread(
                    target=_copy_stream, args=(upstream, client), name="broker", daemon=True
                )
                back.start()
                _copy_stream(client, upstream)
                back.join()

    def _forward_request(self, client: socket.socket, route: SplitResult, request: bytes) -> None:
        encrypt = route.scheme == "https"
        host = route.hostname or ""
        port = route.port or (HTTPS_PORT if encrypt else 80)
        if upstream := self._connect_upstream(client, host, port, route.scheme, encrypt):
            with self._tracked_socket(upstream):
                upstream.sendall(request)
                _relay_both_ways(client, upstream)

    def _connect_upstream(
        self, client: socket.socket, host: str, port: int, scheme: str, encrypt: bool
    ) -> socket.socket | None:
        """A connection to a host that may be reached.

        None, and the job is told, where it cannot be.
        """
        self._report_attempt(ConnectionAttempt(host, port, True))

        try:
            upstream = _connect(host, port, scheme)
            if encrypt:
                upstream = _create_tls_context().wrap_socket(upstream, server_hostname=host)
        except OSError as error:
            _send_error(client, 502, f"{host}:{port} cannot be reached: {error}")
            return None

        for one in (client, upstream):
            one.settimeout(None)

        return upstream

    # --- what is open, and what is told

    def _report_attempt(self, attempt: ConnectionAttempt) -> None:
        with self._lock:
            if (
                self._closed
                or attempt in self._reported_attempts
                or len(self._reported_attempts) >= _MAX_REPORTED_HOSTS
            ):
                return

            self._reported_attempts.add(attempt)
            # Under the lock: after `close` nothing more is told
            self._on_attempt(attempt)

    def _track_socket(self, one: socket.socket) -> None:
        with self._lock:
            if self._closed:
                one.close()
                raise OSError("closed")
            self._open_sockets.add(one)

    @contextmanager
    def _tracked_socket(self, one: socket.socket) -> Iterator[None]:
        self._track_socket(one)
        try:
            yield
        finally:
            with self._lock:
                self._open_sockets.discard(one)

            with suppress(OSError):
                one.close()


def _read_head(client: socket.socket) -> tuple[list[bytes], bytes]:
    """The lines of a request's head, and what came behind it."""
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
    for one, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with suppress(OSError):
            one.shutdown(how)


def _relay_both_ways(client: socket.socket, upstream: socket.socket) -> None:
    """Both directions in one thread: a TLS connection is not to be used by two.

    It ends when the answer does.
    """
    waiting = [client, upstream]

    while True:
        pending = isinstance(upstream, ssl.SSLSocket) and upstream.pending() > 0
        if pending:
            ready = [upstream]
        else:
            ready = select.select(waiting, [], [])[0]

        for source in ready:
            data = source.recv(_CHUNK_BYTES)
            if source is upstream:
                if not data:
                    return

                client.sendall(data)
            elif data:
                upstream.sendall(data)
            else:
                waiting.remove(client)


def _connect(host: str, port: int, scheme: str) -> socket.socket:
    """A connection to a host, through the person's own proxy where they have set one."""
    proxy = find_proxy(host, scheme, os.environ)
    if not proxy:
        return socket.create_connection((host, port), _CONNECT_TIMEOUT_S)

    way = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    upstream = socket.create_connection((way.hostname or "", way.port or 80), _CONNECT_TIMEOUT_S)
    lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
    if way.username:
        who = f"{unquote(way.username)}:{unquote(way.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(who.encode()).decode()}")

    upstream.sendall("\r\n".join([*lines, "", ""]).encode())
    head, _ = _read_head(upstream)
    if not head or head[0].split(b" ")[1:2] != [b"200"]:
        upstream.close()
        raise OSError(f"the proxy says {head[0].decode('ascii', 'replace') if head else 'nothing'}")

    return upstream


def find_proxy(host: str, scheme: str, env: Mapping[str, str]) -> str:
    """The proxy that the person's environment names for this host; empty: none."""
    named = [
        env.get(name) or env.get(name.upper(), "")
        for name in (f"{scheme}_proxy", "all_proxy", "no_proxy")
    ]
    around = [name.strip().lstrip("*.").lower() for name in named.pop().split(",") if name.strip()]
    if any(one == "" or host.lower() == one or host.lower().endswith(f".{one}") for one in around):
        return ""

    return next(filter(None, named), "")


def _create_tls_context() -> ssl.SSLContext:
    """What the system trusts, and what the person's programs are told to trust besides."""
    context = ssl.create_default_context()
    extra = os.environ.get("NODE_EXTRA_CA_CERTS", "")
    if extra and os.path.isfile(extra):
        context.load_verify_locations(extra)
    return context
