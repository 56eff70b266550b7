"""The active workflow as `.isdlc/state.json` tells it, whoever wrote it.

Light enough for the hook.
"""

from __future__ import annotations

from phasegate.storage.state_file import find_state_file, read_state_file


def read_active_state(folder: str) -> object:
    """What the state file of the repository around a folder holds; None without a readable one."""
    path = find_state_file(folder)
    if path:
        return read_state_file(path)
    return None
