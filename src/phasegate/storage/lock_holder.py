"""Read who holds a feature's lock from the lock file, without taking the lock.

Taking the lock to find out would make a run that starts at that moment fail. This module imports
little, because `status` uses it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.artifact_path import find_slug_problem, require_slug
from phasegate.core.text.light_json import parse_json
from phasegate.files import read_regular_file

MAX_LOCK_FILE_BYTES = 4096
# A zombie keeps its number and start time, but none of its locks
_DEAD_STATES = (b"Z", b"X")


class LockHolder(NamedTuple):
    """The process that holds a lock.

    Its start time distinguishes it from a later process with the same id.
    """

    pid: int
    process_start: str
    command: str
    since: str


def lock_path(folder: Path, feature: str) -> Path:
    """Return the lock file of a feature, or of a package (named by feature and package id, like its
    branch).
    """
    return folder / f"feature-{require_slug(feature)}.lock"


def find_live_holder(folder: Path, feature: str) -> LockHolder | None:
    """Return the live process that holds the lock of a feature, or None if there is none.

    An unreadable lock file names no process.
    """
    content = read_regular_file(lock_path(folder, feature), MAX_LOCK_FILE_BYTES)
    if content:
        holder = parse_holder(content)
    else:
        holder = None

    if holder is not None and is_alive(holder):
        return holder

    return None


def list_live_holders(folder: Path) -> dict[str, LockHolder]:
    """Return the live holders of all locks, by feature or by feature and package."""
    found = {
        name: find_live_holder(folder, name)
        for name in sorted(list_lock_names(folder))
        if not find_slug_problem(name)
    }
    return {name: holder for name, holder in found.items() if holder is not None}


def list_lock_names(folder: Path) -> set[str]:
    """Return the names that have a lock file, whether the lock is held or not.

    This takes one directory read, even for a thousand names.
    """
    try:
        with os.scandir(folder) as found:
            files = [one.name for one in found if one.name.startswith("feature-")]
    except OSError:
        return set()

    return {name.removeprefix("feature-").removesuffix(".lock") for name in files}


def parse_holder(content: bytes) -> LockHolder | None:
    """Parse the content of a lock file; None if the lock was released or it is malformed."""
    try:
        found = parse_json(content.decode())
    except (ValueError, StopIteration, RecursionError):
        return None

    if (
        not isinstance(found, dict)
        or found.keys() != set(LockHolder._fields)
        or not isinstance(found["pid"], int)
    ):
        return None

    texts = (found["process_start"], found["command"], found["since"])
    if all(isinstance(text, str) for text in texts):
        return LockHolder(found["pid"], *texts)

    return None


def is_alive(holder: LockHolder) -> bool:
    """Return True if the holder still runs, and its process id was not reused."""
    return _process_exists(holder.pid) and read_process_start(holder.pid) == holder.process_start


def read_process_start(pid: int) -> str:
    """Return the kernel's start time of a process; empty if unknown, `dead` if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] in _DEAD_STATES:
            return "dead"
        return fields[19].decode()
    except (OSError, IndexError):
        return ""


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False

    return pid > 0
