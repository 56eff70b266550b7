"""What a job needs to start servers beside other jobs: ports and a data folder of its own."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phasegate.errors import EnvironmentUnavailable

PORTS_PER_JOB = 10
# Below the ports that the system gives out by itself
_FIRST_PORT = 20_000
_PORT_BLOCKS = 1_000


@contextmanager
def reserve_ports_and_data(folder: Path, locks: Path) -> Iterator[dict[str, str]]:
    """Variables of a job that may start servers.

    Ports that no other job of this repository has, and a data folder.
    """
    data = folder / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    locks.mkdir(parents=True, mode=0o700, exist_ok=True)
    with _reserve_ports(locks) as ports:
        listed = " ".join(map(str, ports))
        yield {"PORT": str(ports[0]), "PHASEGATE_PORTS": listed, "PHASEGATE_DATA": str(data)}


@contextmanager
def _reserve_ports(locks: Path) -> Iterator[range]:
    """A block of free ports, ours while the lock on its file lasts.

    Another program may still take one: bind early.
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
        "no free ports are left for this job", "end what listens on ports 20000 to 29999"
    )


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False

    return True
