"""Receive events of the forge: each one that is genuine asks for a look at the forge.

The content of an event is not used: the new state is read from the forge.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import Event

from phasegate.core.forge.webhook import is_genuine_event
from phasegate.engine.project.forge import find_forge_address
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.http_server import serve_http

# GitHub's limit for an event
_MAX_EVENT_BYTES = 25 * 1024**2
_REQUEST_TIMEOUT_S = 10.0


@contextmanager
def listen_for_events(project: Project, address: str, wake: Event) -> Iterator[str]:
    """Set `wake` for each genuine event while the block runs; yield the address."""
    kind = find_forge_address(project).kind
    secret = _read_secret(project)

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_S

        def do_POST(self) -> None:
            """Set `wake` for a genuine event, and refuse every other request."""
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal():
                self._answer(HTTPStatus.LENGTH_REQUIRED)
                return
            if int(length) > _MAX_EVENT_BYTES:
                self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                return

            body = self.rfile.read(int(length))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if not is_genuine_event(kind, headers, body, secret):
                self._answer(HTTPStatus.UNAUTHORIZED)
                return

            wake.set()
            self._answer(HTTPStatus.ACCEPTED)

        def _answer(self, status: HTTPStatus) -> None:
            self.close_connection = True
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log no requests."""

    with serve_http(address, Handler, "give --listen HOST:PORT") as served:
        yield served


def _read_secret(project: Project) -> str:
    variable = project.config.forge.webhook_secret_env
    if variable is None:
        raise EnvironmentUnavailable(
            "events of the forge cannot be checked without a secret",
            "set webhook_secret_env in [forge] to the variable that has the webhook's secret",
        )

    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise EnvironmentUnavailable(
            f"{variable} is not set", "it must contain the secret of the webhook on the forge"
        )
    return secret
