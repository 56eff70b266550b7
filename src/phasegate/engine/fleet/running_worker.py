"""The workers that run in a clone, and the order to them to drain."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import sleep

from phasegate.files import read_regular_file
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.sandbox.detached import terminate_process
from phasegate.storage.location import Location
from phasegate.storage.lock_holder import (
    MAX_LOCK_FILE_BYTES,
    LockHolder,
    is_alive,
    parse_holder,
    read_process_start,
)

# Unlike a second SIGTERM, a second one changes nothing
DRAIN_SIGNAL = signal.SIGUSR1
_POLL_INTERVAL_S = 0.2


@contextmanager
def announce_worker(location: Location, since: str) -> Iterator[None]:
    """Name this process as a worker of its clone; it must handle DRAIN_SIGNAL already."""
    path = _folder(location) / str(os.getpid())
    holder = LockHolder(os.getpid(), read_process_start(os.getpid()), "worker", since)
    make_folder(path.parent)
    replace_file(path, json.dumps(holder._asdict()).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def drain_workers(location: Location, report: Callable[[LockHolder], None]) -> int:
    """Tell the workers of a clone to drain, and wait until they have ended. Return their number.

    `report` gets each worker that drains now.
    """
    workers = list_workers(location)
    for worker in workers:
        if terminate_process(worker.pid, partial(is_alive, worker), DRAIN_SIGNAL):
            report(worker)

    while any(map(is_alive, workers)):
        sleep(_POLL_INTERVAL_S)

    return len(workers)


def list_workers(location: Location) -> list[LockHolder]:
    """Return the live workers of a clone; remove the files of killed ones."""
    found: list[LockHolder] = []
    with suppress(FileNotFoundError):
        for path in sorted(_folder(location).iterdir()):
            holder = parse_holder(read_regular_file(path, MAX_LOCK_FILE_BYTES) or b"")
            if holder is not None and is_alive(holder):
                found.append(holder)
            else:
                path.unlink(missing_ok=True)

    return found


def _folder(location: Location) -> Path:
    clone = sha256(os.fsencode(location.git_dir)).hexdigest()[:12]
    return location.state_home / "fleet-workers" / clone
