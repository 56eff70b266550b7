"""The pause of a fleet in the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from phasegate.engine.fleet.pause import change_pause, read_pause
from phasegate.storage.bucket.client import Bucket, BucketAddress

NOON = "2026-01-01T12:00:00.000Z"
LATER = "2026-01-01T13:00:00.000Z"


@contextmanager
def bucket_of(objects: dict[str, bytes]) -> Iterator[Bucket]:
    """A bucket of a server that knows conditional writes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = objects.get(self.path)
            self._answer(404 if found is None else 200, found or b"")

        def do_PUT(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            found = objects.get(self.path)
            is_stale = found is not None and self.headers["If-Match"] != _etag(found)
            if is_stale or (found is None and self.headers["If-None-Match"] != "*"):
                self._answer(412, b"")
            else:
                objects[self.path] = sent
                self._answer(200, b"", _etag(sent))

        def _answer(self, status: int, body: bytes, etag: str = "") -> None:
            self.send_response(status)
            self.send_header("ETag", etag or _etag(body))
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 12:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield Bucket(BucketAddress(endpoint, "team", "", "us-east-1"), ("key", "secret"))
    finally:
        server.shutdown()
        server.server_close()


def _etag(data: bytes) -> str:
    return f'"{data.hex()}"'


def test_a_fleet_is_paused_until_it_is_resumed_and_may_be_paused_again() -> None:
    with bucket_of({}) as bucket:
        assert read_pause(bucket) == ""
        assert change_pause(bucket, "") == ""
        assert change_pause(bucket, NOON) == ""
        assert read_pause(bucket) == NOON
        assert change_pause(bucket, LATER) == NOON, "it keeps its time"
        assert read_pause(bucket) == NOON
        assert change_pause(bucket, "") == NOON
        assert read_pause(bucket) == ""
        assert change_pause(bucket, LATER) == ""
        assert read_pause(bucket) == LATER


@pytest.mark.parametrize("data", [b"", b"[]", b'{"since": 7}', b"\xff"])
def test_a_pause_that_cannot_be_read_counts_and_can_be_ended(data: bytes) -> None:
    with bucket_of({"/team/fleet/pause": data}) as bucket:
        assert read_pause(bucket) == "an unknown time"
        assert change_pause(bucket, "") == "an unknown time"
        assert read_pause(bucket) == ""
