"""Reserve ports and a data folder for a job, so that parallel jobs can run servers."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phasegate.errors import EnvironmentUnavailable

PORTS_PER_JOB = 10
# Below the ephemeral ports of the operating system
_FIRST_PORT = 20_000
_PORT_BLOCKS = 1_000


@contextmanager
def reserve_ports_and_data(folder: Path, locks: Path) -> Iterator[dict[str, str]]:
    """Yield environment variables with ports that no other job of this repository uses, and a data
    folder.
    """
    data = folder / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    locks.mkdir(parents=True, mode=0o700, exist_ok=True)
    with _reserve_ports(locks) as ports:
        yield {
            "PORT": str(ports[0]),
            "PHASEGATE_PORTS": " ".join(map(str, ports)),
            "PHASEGATE_DATA": str(data),
        }


@contextmanager
def _reserve_ports(locks: Path) -> Iterator[range]:
    """Reserve a block of free ports while the lock on its file is held.

    Other programs do not honour the lock and may still take a port: bind early.
    """
    first = int.from_bytes(os.urandom(2)) % _PORT_BLOCKS

    for block in (*range(first, _PORT_BLOCKS), *range(first)):
        ports = range(
            _FIRST_PORT + block * PORTS_PER_JOB, _FIRST_PORT + (block + 1) * PORTS_PER_JOB
        )
        with (locks / f"ports-{block}").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue

            if all(map(_is_port_free, ports)):
                yield ports
                return

    raise EnvironmentUnavailable(
        "no free ports are left for this job", "stop programs that listen on ports 20000 to 29999"
    )


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False

    return True
