"""Who holds a feature's lock, read from the lock's file without touching the lock.

Light: `status` asks it.

Asking by taking the lock for an instant would make a run that starts at that instant fail.
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
    """Who holds a lock: enough to find the process, and to tell it from a later one with the same
    number.
    """

    pid: int
    process_start: str
    command: str
    since: str


def lock_path(folder: Path, feature: str) -> Path:
    """The file of a feature's lock.

    A package's is named by its feature and its id, as its branch is.
    """
    return folder / f"feature-{require_slug(feature)}.lock"


def find_live_holder(folder: Path, feature: str) -> LockHolder | None:
    """The process that works on a feature now; None if nobody does.

    A file that cannot be read names nobody.
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
    """Who works on what now.

    The living holder of each lock, by the name of its feature, or feature and package.
    """
    found = {
        name: find_live_holder(folder, name)
        for name in sorted(list_lock_names(folder))
        if not find_slug_problem(name)
    }
    return {name: holder for name, holder in found.items() if holder is not None}


def list_lock_names(folder: Path) -> set[str]:
    """Of which names there is a lock's file, held or left behind.

    One look, where a thousand names are asked about.
    """
    try:
        with os.scandir(folder) as found:
            files = [one.name for one in found if one.name.startswith("feature-")]
    except OSError:
        return set()

    return {name.removeprefix("feature-").removesuffix(".lock") for name in files}


def parse_holder(content: bytes) -> LockHolder | None:
    """What the last holder wrote into a lock's file.

    None after a proper end, or if it is unreadable.
    """
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
    """Whether the process that signed still runs, and not another one that was given its number."""
    return _process_exists(holder.pid) and read_process_start(holder.pid) == holder.process_start


def read_process_start(pid: int) -> str:
    """When a running process started, as the kernel counts.

    Empty where it does not say, `dead` after its end.
    """
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
