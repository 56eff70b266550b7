"""How long a bucket that refuses or is away is waited for, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from phasegate.errors import EnvironmentUnavailable, Interrupted, TemporarilyUnavailable
from phasegate.storage.bucket.client import Bucket, BucketAddress

REFUSAL = b"<Error><Code>AccessDenied</Code></Error>"
MISSING = b"<Error><Code>NoSuchKey</Code></Error>"


@contextmanager
def refusing_server(refusals: int) -> Iterator[str]:
    """A server that refuses some requests, and then has no object."""
    left = [refusals]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            left[0] -= 1
            body = REFUSAL if left[0] >= 0 else MISSING
            self.send_response(403 if left[0] >= 0 else 404)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def open_bucket(endpoint: str, stop: Event | None, name: str, timeout_s: float = 60.0) -> Bucket:
    address = BucketAddress(endpoint, name, "", "us-east-1")
    return Bucket(address, ("key", "secret"), retry_timeout_s=timeout_s, stop=stop)


def test_a_service_waits_while_its_key_is_refused_and_a_person_is_told_at_once() -> None:
    with refusing_server(3) as endpoint:
        with pytest.raises(EnvironmentUnavailable, match="refused the request") as told:
            open_bucket(endpoint, None, "person").get("x")
        assert not isinstance(told.value, TemporarilyUnavailable)
        assert open_bucket(endpoint, Event(), "worker").get("x") is None


def test_a_service_that_must_end_does_not_wait_for_a_bucket_that_is_away() -> None:
    stop = Event()
    stop.set()
    with pytest.raises(Interrupted):
        open_bucket("http://127.0.0.1:9", stop, "away", 600.0).get("x")
