"""`.isdlc/state.json`, read as any tool may have written it. Light enough for the hook."""

from __future__ import annotations

import os

from phasegate.core.text.light_json import parse_json
from phasegate.files import read_regular_file

STATE_PATH = ".isdlc/state.json"
MAX_STATE_BYTES = 4_000_000


def find_state_file(start: str) -> str | None:
    """The state file of the repository around a folder.

    The first one upwards, not beyond the repository's root.

    Outside of any repository only the folder's own file counts: nobody knows who wrote those
    further up.
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
            if found == own:
                return own
            return None

        folder = parent


def read_state_file(path: str) -> object:
    """What the file holds, or None for anything that is not a readable, plain file of JSON."""
    raw = read_regular_file(path, MAX_STATE_BYTES)
    if raw is None:
        return None

    try:
        return parse_json(raw.decode())
    except (ValueError, RecursionError, StopIteration):
        return None
