"""Write `.isdlc/state.json` as a view of the store, for other tools, and our own file beside it.

Phasegate does not rely on it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from phasegate.core.workflow.phase_transitions import (
    Workflow,
    build_own_state,
    build_state_view,
)
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files import open_folder
from phasegate.files.durable_write import remove_stale_temp_files, replace_file_at
from phasegate.storage.state_file import OWN_STATE_NAME, STATE_PATH, read_state_file

FOREIGN_STATE_BACKUP_NAME = "state.json.kept"
_HINT = "remove it; state.json is regenerated from the store"


def format_state(state: dict[str, object]) -> str:
    """Return the text of a state.json."""
    return msgspec.json.format(msgspec.json.encode(state), indent=2).decode() + "\n"


def write_state_view(root: Path, workflow: Workflow | None) -> None:
    """Write the state of the store to state.json and phasegate.json, each atomically.

    Raise an error if the existing path is not a regular file.
    """
    path = root / STATE_PATH
    text = format_state(build_state_view(workflow)).encode()
    own_text = format_state(build_own_state(workflow)).encode()

    try:
        path.parent.mkdir(exist_ok=True)
        folder = open_folder(path.parent)
    except (NotADirectoryError, FileExistsError) as error:
        raise StateConflict(f"{path.parent} is not a folder", _HINT) from error
    except OSError as error:
        raise EnvironmentUnavailable(f"cannot create {path.parent}: {error.strerror}") from error

    try:
        _require_regular_file(folder, path)
        _require_regular_file(folder, path.with_name(OWN_STATE_NAME))
        _back_up_foreign_state(folder, path)
        replace_file_at(folder, OWN_STATE_NAME, own_text, 0o644)
        replace_file_at(folder, path.name, text, 0o644)
        remove_stale_temp_files(folder)
    except OSError as error:
        raise EnvironmentUnavailable(f"{path} cannot be written: {error.strerror}") from error
    finally:
        os.close(folder)


def _require_regular_file(folder: int, path: Path) -> None:
    try:
        about = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(about.st_mode):
        raise StateConflict(f"{path} is not a regular file", _HINT)


def _back_up_foreign_state(folder: int, path: Path) -> None:
    """Back up the state file of another tool once, since it may have more fields."""
    found = read_state_file(str(path))

    if isinstance(found, dict) and found.keys() - {"active_workflow"}:
        try:
            os.link(
                path.name,
                FOREIGN_STATE_BACKUP_NAME,
                src_dir_fd=folder,
                dst_dir_fd=folder,
                follow_symlinks=False,
            )
        except FileExistsError:
            return
