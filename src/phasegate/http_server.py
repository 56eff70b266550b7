"""Serve HTTP in a separate thread while a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from phasegate.errors import EnvironmentUnavailable


@contextmanager
def serve_http(address: str, handler: type[BaseHTTPRequestHandler], remedy: str) -> Iterator[str]:
    """Answer requests at `HOST:PORT` while the block runs; yield the address with its real port."""
    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), handler)
    except (OSError, ValueError, OverflowError) as error:
        raise EnvironmentUnavailable(f"cannot listen at {address}: {error}", remedy) from error

    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()

    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
