"""Serve the health and the metrics of a worker by HTTP: `/healthz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from phasegate.core.display.worker_log import WorkerMetrics, render_metrics
from phasegate.errors import EnvironmentUnavailable


@contextmanager
def serve_health(address: str, read_metrics: Callable[[], WorkerMetrics]) -> Iterator[None]:
    """Answer at `host:port` while the block runs; an empty address serves nothing.

    `/healthz` is 200 while the worker takes work, and 503 while it drains.
    """
    if not address:
        yield
        return

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Serve /healthz and /metrics."""
            metrics = read_metrics()
            status = HTTPStatus.OK
            if self.path == "/metrics":
                text = render_metrics(metrics)
            elif self.path != "/healthz":
                status = HTTPStatus.NOT_FOUND
                text = "not found\n"
            elif metrics.is_draining:
                status = HTTPStatus.SERVICE_UNAVAILABLE
                text = "draining\n"
            else:
                text = "serving\n"

            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Log no requests."""

    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise EnvironmentUnavailable(
            f"cannot listen at {address}: {error}", "set health_address in [fleet] to HOST:PORT"
        ) from error

    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()

    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
