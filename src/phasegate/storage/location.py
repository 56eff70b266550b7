"""Locate the repository of a folder, its `.phasegate` folder and the user's state directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.errors import ConfigError, EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import make_folder
from phasegate.files.git_exclude import add_git_excludes
from phasegate.storage.repository_kind import reject_git_directory

# Folder in the state directory; each copy contains the path of the clone that it belongs to
FLEET_COPIES_FOLDER = "fleet-copies"
CLONE_PATH_FILE = "clone"


class Location(NamedTuple):
    """One repository: its main working tree, its git directory, and the user's state directory."""

    root: Path
    git_dir: Path
    state_home: Path
    # The local copy of a fleet's record, which is read instead of `.phasegate`
    fleet_copy: Path | None = None

    @property
    def data_folder(self) -> Path:
        return self.fleet_copy or self.root / ".phasegate"

    @property
    def store_path(self) -> Path:
        return self.data_folder / "store.db"

    @property
    def locks_folder(self) -> Path:
        return self.data_folder / "locks"

    @property
    def trails_folder(self) -> Path:
        return self.data_folder / "audit"

    @property
    def jobs_folder(self) -> Path:
        return self.data_folder / "jobs"


def locate_repository(start: Path, environment: Mapping[str, str]) -> Location:
    """Return the repository that contains a folder, and the user's state directory.

    The folder may be the local copy of a fleet's journal.
    """
    home = state_home(environment)
    is_copy = start.parent == home / FLEET_COPIES_FOLDER
    root = find_root(
        Path((start / CLONE_PATH_FILE).read_text(errors="surrogateescape")) if is_copy else start
    )

    return Location(root, _find_common_git_dir(root), home, start if is_copy else None)


def find_root(start: Path) -> Path:
    """Return the main working tree of the repository that contains a folder.

    The folder may also be in a linked worktree or in an agent's checkout.
    """
    start = Path(os.path.realpath(start))

    for folder in (start, *start.parents):
        if not os.path.lexists(folder / ".git"):
            continue

        above = folder.parent.parent
        if folder.parent.name == ".worktrees" and os.path.lexists(above / ".git"):
            # A package's checkout: its own content does not decide which repository it belongs to
            return above

        git_dir = _find_common_git_dir(folder)
        if git_dir.name == ".git":
            return git_dir.parent

        return folder

    for folder in (start, *start.parents):
        reject_git_directory(str(folder))

    raise ConfigError(
        f"{start} is not in a git repository", "change to a repository, or create one: git init"
    )


def find_linked_worktree_git_dir(start: Path) -> Path | None:
    """Return the git directory of the linked worktree that contains a folder.

    Return None in the main worktree or in an agent's checkout.
    """
    start = Path(os.path.realpath(start))
    folder = next((one for one in (start, *start.parents) if os.path.lexists(one / ".git")), None)
    if folder is None or folder.parent.name == ".worktrees" or not (folder / ".git").is_file():
        return None

    text = (folder / ".git").read_text(encoding="utf-8", errors="surrogateescape")
    own = folder / text.removeprefix("gitdir:").strip()
    if (own / "commondir").is_file() and (own / "HEAD").is_file():
        return own

    return None


def find_main_worktree(start: Path) -> Path:
    """Return the main working tree of a folder; outside a repository, the folder itself."""
    inside = any(os.path.lexists(folder / ".git") for folder in (start, *start.parents))
    if inside:
        return find_root(start)
    return start


def _find_common_git_dir(root: Path) -> Path:
    """Return the git directory that all worktrees share, without running git."""
    dot_git = root / ".git"

    try:
        if dot_git.is_dir():
            return dot_git

        text = dot_git.read_text(encoding="utf-8", errors="surrogateescape")
        own = root / text.removeprefix("gitdir:").strip()
        common = own / "commondir"
        if common.is_file():
            shared = own / common.read_text(encoding="utf-8").strip()
        else:
            shared = own
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{dot_git} cannot be read: {error}", "check it with: git status"
        ) from error

    if not text.startswith("gitdir:") or not shared.is_dir():
        raise ConfigError(
            f"{dot_git} does not point to a git directory", "check it with: git status"
        )

    return Path(os.path.realpath(shared))


def state_home(environment: Mapping[str, str]) -> Path:
    """Return `$XDG_STATE_HOME/phasegate`, by default below the home directory."""
    named = environment.get("XDG_STATE_HOME", "")
    if named.startswith("/"):
        base = Path(named)
    else:
        base = Path("~/.local/state").expanduser()

    return base / "phasegate"


def prepare_data_folder(location: Location) -> None:
    """Create `.phasegate` and its folders, private to the user and excluded from git."""
    try:
        for folder in (location.data_folder, location.locks_folder, location.trails_folder):
            if not os.path.lexists(folder):
                make_folder(folder)
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise StateConflict(f"{folder} is not a folder", "move the existing file aside")

        # Links in folders of an existing record may be the user's own, and a clone has no record.
        is_new = not os.path.lexists(location.store_path)
        _reject_links(str(location.data_folder), depth=2 if is_new else 1)
        add_git_excludes(location.git_dir, OWN_FOLDERS)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"cannot create {error.filename}: {error.strerror}",
            "check the permissions of the repository",
        ) from error


def _reject_links(folder: str, depth: int) -> None:
    """Refuse links, which came with a clone: files would be written where they lead to.

    Phasegate creates links only further down, in checkouts and setups.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise StateConflict(
                    f"{entry.path} is a link: Phasegate did not create it", "remove it"
                )
            if depth > 1 and entry.is_dir():
                _reject_links(entry.path, depth - 1)
