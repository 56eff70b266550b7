"""Read the active workflow from `.isdlc/state.json`, which other tools may have written too.

The hook imports this module, so it has few imports.
"""

from __future__ import annotations

from phasegate.storage.state_file import OWN_STATE_NAME, find_state_file, read_state_file


def read_active_state(folder: str) -> object:
    """Return the content of the repository's state file, or None if there is no readable one."""
    path = find_state_file(folder)
    if path:
        return read_state_file(path)
    return None


def read_own_state(folder: str) -> object:
    """Return Phasegate's copy of the state from beside the repository's state file, or None."""
    path = find_state_file(folder)
    if path:
        return read_state_file(path.removesuffix("state.json") + OWN_STATE_NAME)
    return None
