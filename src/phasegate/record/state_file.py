"""`.isdlc/state.json`, read as any tool may have written it. Light enough for the hook."""

from __future__ import annotations

import os
import stat

from phasegate.rules.plain_json import parse_json

STATE_PATH = ".isdlc/state.json"
LARGEST_STATE_BYTES = 4_000_000


def find_state(start: str) -> str | None:
    """The state file of the repository around a folder: the first one upwards, not beyond the repository's root.

    Outside of any repository only the folder's own file counts: nobody knows who wrote those further up.
    """
    own = f"{start}/{STATE_PATH}"
    found = None
    folder = start
    while True:
        path = f"{folder}/{STATE_PATH}"
        if found is None and os.path.lexists(path):
            found = path
        parent = os.path.dirname(folder)
        # A package's checkout belongs to the repository around it: agents ask from there.
        if os.path.lexists(f"{folder}/.git") and os.path.basename(parent) != ".worktrees":
            return found
        if parent == folder:
            return own if found == own else None
        folder = parent


def read_state(path: str) -> object:
    """What the file holds, or None for anything that is not a readable, plain file of JSON."""
    raw = _read_plain_file(path)
    if raw is None:
        return None
    try:
        return parse_json(raw.decode())
    except (ValueError, RecursionError, StopIteration):
        return None


def _read_plain_file(path: str) -> bytes | None:
    """The bytes of a regular file; never follows a link, never waits at a pipe, never loads a huge file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_STATE_BYTES:
            return None
        return _read_all(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes | None:
    """All bytes up to the limit; a file that grows past it while we read is refused."""
    parts: list[bytes] = []
    left = LARGEST_STATE_BYTES + 1
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts) if left > 0 else None
