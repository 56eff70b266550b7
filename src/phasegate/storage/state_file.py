"""Read `.isdlc/state.json`, whichever tool wrote it, and Phasegate's own file beside it.

This module imports little, because the hook uses it.
"""

from __future__ import annotations

import os

from phasegate.core.text.light_json import parse_json
from phasegate.files import read_regular_file

STATE_PATH = ".isdlc/state.json"
# What Phasegate keeps besides the fields of state.json, in the same folder
OWN_STATE_NAME = "phasegate.json"
MAX_STATE_BYTES = 4_000_000


def find_state_file(start: str) -> str | None:
    """Return the state file of the repository that contains a folder.

    The folder and its parents are searched up to the repository's root. Outside a repository only
    the folder's own file counts, because files in its parents may belong to anyone.
    """
    own = f"{start}/{STATE_PATH}"
    found = None
    folder = start

    while True:
        path = f"{folder}/{STATE_PATH}"
        if found is None and os.path.lexists(path):
            found = path

        parent = os.path.dirname(folder)
        # A package's checkout belongs to the repository around it, and agents run the hook there.
        if os.path.lexists(f"{folder}/.git") and os.path.basename(parent) != ".worktrees":
            return found

        if parent == folder:
            if found == own:
                return own
            return None

        folder = parent


def read_state_file(path: str) -> object:
    """Return the parsed file, or None if it is not a readable regular file with JSON."""
    raw = read_regular_file(path, MAX_STATE_BYTES)
    if raw is None:
        return None

    try:
        return parse_json(raw.decode())
    except (ValueError, RecursionError, StopIteration):
        return None
