"""Serve the health and the metrics of a worker by HTTP: `/healthz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from phasegate.core.display.worker_log import WorkerMetrics, render_metrics
from phasegate.http_server import serve_http


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

    with serve_http(address, Handler, "set health_address in [fleet] to HOST:PORT"):
        yield
