"""The HTTP server of the board, on loopback only."""

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
# A client must send its request within this time
REQUEST_TIMEOUT_S = 10.0
# More connections without a request than these: the oldest one is closed
MAX_IDLE_CONNECTIONS = MAX_CONNECTIONS // 2


class _IdleTimeoutProtocol(H11Protocol):
    """Closes a connection without a request.

    Many of them would use up all connections.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connected_at_s = self.loop.time()
        self._close_oldest_idle()
        self.loop.call_later(REQUEST_TIMEOUT_S, self._close_if_idle)

    def _close_oldest_idle(self) -> None:
        """Close the connection that has waited longest without a request, if there are many."""
        if len(self.connections) <= MAX_IDLE_CONNECTIONS:
            return

        idle = [
            other
            for other in self.connections
            if isinstance(other, _IdleTimeoutProtocol) and other.is_idle()
        ]
        if len(idle) > MAX_IDLE_CONNECTIONS:
            min(idle, key=lambda other: other._connected_at_s).transport.close()

    def is_idle(self) -> bool:
        """Return True if no request has arrived yet."""
        return self.cycle is None and not self.transport.is_closing()

    def _close_if_idle(self) -> None:
        if self.is_idle():
            self.transport.close()


def open_socket(port: int) -> socket.socket:
    """Open a listening socket on loopback; port 0 selects any free port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    try:
        listener.bind(("127.0.0.1", port))
        # Before the link is printed: an early client waits instead of being refused
        listener.listen(MAX_CONNECTIONS)
    except OSError:
        listener.close()
        raise

    return listener


def serve_board(
    start_root: Path | None,
    listener: socket.socket,
    credentials: BoardCredentials,
    on_ready: Callable[[], None],
) -> None:
    """Serve until a signal arrives."""
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
