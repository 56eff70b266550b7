"""`.isdlc/state.json` as a view of the store: written whole, for any tool to read, and never believed by us."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from phasegate.core.workflow.lifecycle import Workflow, state_view
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files import open_folder
from phasegate.files.durable_write import remove_left, replace_at
from phasegate.storage.state_file import STATE_PATH, read_state

KEPT_NAME = "state.json.kept"
_HINT = "remove what stands in its place; state.json is made anew from the store"


def state_text(state: dict[str, object]) -> str:
    """The text of a state.json."""
    return msgspec.json.format(msgspec.json.encode(state), indent=2).decode() + "\n"


def write_view(root: Path, workflow: Workflow | None) -> None:
    """Replace state.json at once with what the store says. Whatever else stands under its name is refused."""
    path = root / STATE_PATH
    text = state_text(state_view(workflow)).encode()
    try:
        path.parent.mkdir(exist_ok=True)
        folder = open_folder(path.parent)
    except (NotADirectoryError, FileExistsError) as error:
        raise StateConflict(f"{path.parent} is not a folder", _HINT) from error
    except OSError as error:
        raise EnvironmentUnavailable(f"{path.parent} cannot be made: {error.strerror}") from error
    try:
        _refuse_what_is_no_file(folder, path)
        _keep_foreign_state(folder, path)
        replace_at(folder, path.name, text, 0o644)
        remove_left(folder)
    except OSError as error:
        raise EnvironmentUnavailable(f"{path} cannot be written: {error.strerror}") from error
    finally:
        os.close(folder)


def _refuse_what_is_no_file(folder: int, path: Path) -> None:
    try:
        about = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(about.st_mode):
        raise StateConflict(f"{path} is not a plain file", _HINT)


def _keep_foreign_state(folder: int, path: Path) -> None:
    """A state file of another tool may hold more than ours: it is kept beside, once."""
    found = read_state(str(path))
    if isinstance(found, dict) and found.keys() - {"active_workflow"}:
        try:
            os.link(path.name, KEPT_NAME, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return
