"""Serves the board on loopback until it is ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from phasegate.interfaces.board.access import AccessMiddleware, BoardCredentials
from phasegate.interfaces.board.app import Board, build_app

MAX_CONNECTIONS = 200
# For a client to say what it wants
REQUEST_TIMEOUT_S = 10.0


class _IdleTimeoutProtocol(H11Protocol):
    """Closes a connection that does not come to ask anything.

    Many of them would keep everybody else out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(REQUEST_TIMEOUT_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def open_socket(port: int) -> socket.socket:
    """A socket on loopback that listens; with 0, on any free port."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    try:
        found.bind(("127.0.0.1", port))
        # Before the link is printed: who is quick waits, and is not refused
        found.listen(MAX_CONNECTIONS)
    except OSError:
        found.close()
        raise

    return found


def serve_board(
    start_root: Path | None,
    listener: socket.socket,
    credentials: BoardCredentials,
    on_ready: Callable[[], None],
) -> None:
    """Serve until a signal ends it."""
    board = Board(start_root, credentials)
    config = uvicorn.Config(
        AccessMiddleware(build_app(board), credentials),
        http=_IdleTimeoutProtocol,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=16_384,
    )

    on_ready()
    uvicorn.Server(config).run(sockets=[listener])
