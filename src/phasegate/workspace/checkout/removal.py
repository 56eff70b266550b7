"""Remove or replace files that an agent left: at any depth, with any mode, never through a link."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from phasegate.files import create_new_file
from phasegate.files.safe_open import folder_beneath, folder_descriptor
from phasegate.workspace.repository.disk_files import list_names

_TRASH_PREFIX = ".removing-"


class TrashFolder:
    """A folder to which files and folders are moved before they are removed.

    A subfolder that is not empty is moved up into the trash folder, so that no path gets too long
    and no descriptor per level is needed. Two processes may empty the same trash; files that the
    other one removed first are ignored.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._token = secrets.token_hex(6)
        self._count = 0

    def remove(self, folder: int, name: str) -> None:
        """Remove a file or an empty folder; move any other folder into the trash."""
        with suppress(FileNotFoundError):
            if not _is_folder(folder, name):
                os.unlink(name, dir_fd=folder)
            elif not _try_rmdir(folder, name):
                self._count += 1
                os.chmod(name, 0o700, dir_fd=folder)
                new_name = f"{self._token}-{self._count}"
                os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=self._descriptor)

    def remove_beneath(self, root: int, path: str) -> None:
        """Remove the file or folder at a path below `root`, if it exists."""
        folder, _, name = path.rpartition("/")
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            folder_beneath(root, folder) as descriptor,
        ):
            self.remove(descriptor, name)

    def empty(self) -> None:
        """Remove everything that was moved here."""
        while names := list_names(self._descriptor):
            for name in names:
                with suppress(FileNotFoundError):
                    self._remove_entry(name)

    def _remove_entry(self, name: str) -> None:
        if not _is_folder(self._descriptor, name):
            os.unlink(name, dir_fd=self._descriptor)
            return

        with folder_descriptor(name, self._descriptor) as folder:
            for entry in list_names(folder):
                self.remove(folder, entry)

        os.rmdir(name, dir_fd=self._descriptor)


@contextmanager
def open_trash_folder(parent: Path) -> Iterator[TrashFolder]:
    """Create a trash folder for a `with` block.

    At the end it is emptied and removed, together with the trash folders of dead processes.
    """
    try:
        with ExitStack() as stack:
            descriptor = None
            # Another process may treat the folder as stale before it is locked
            while descriptor is None:
                descriptor = _open_locked(
                    stack, Path(tempfile.mkdtemp(prefix=_TRASH_PREFIX, dir=parent))
                )

            yield TrashFolder(descriptor)
    finally:
        _remove_stale_folders(parent)


def remove_tree(path: Path) -> None:
    """Remove a folder and its content. It disappears from its place at once."""
    with open_trash_folder(path.parent) as room, folder_descriptor(path.parent) as above:
        room.remove(above, path.name)


def _open_locked(stack: ExitStack, trash: Path) -> int | None:
    """Open and lock a trash folder, or return None if its owner is alive or the folder is gone."""
    try:
        descriptor = stack.enter_context(folder_descriptor(trash))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if trash.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
        return None
    except (BlockingIOError, FileNotFoundError):
        return None


def place_file(folder: Path, name: str, text: str) -> None:
    """Write a file into a folder that an agent may have written to.

    An existing file, link or folder of that name is removed first: a link could redirect the write
    to any file of the user, and a pipe could block it forever.
    """
    with folder_descriptor(folder) as root:
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=root)
        except OSError:
            # The name belongs to a folder
            with open_trash_folder(folder.parent) as room:
                room.remove(root, name)

        _write_new_file(root, name, text)


def place_folder(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """Write a folder with these files, after removing anything of the same name."""
    with folder_descriptor(folder) as root, open_trash_folder(folder.parent) as room:
        room.remove(root, name)
        os.mkdir(name, 0o755, dir_fd=root)
        with folder_descriptor(name, root) as made:
            for one, text in files.items():
                _write_new_file(made, one, text)


def _write_new_file(folder: int, name: str, text: str) -> None:
    with os.fdopen(create_new_file(name, 0o644, folder), "w", encoding="utf-8") as file:
        file.write(text)


def _remove_stale_folders(parent: Path) -> None:
    """Empty and remove every trash folder whose owner has finished or died."""
    for room in parent.glob(_TRASH_PREFIX + "*"):
        with ExitStack() as stack, suppress(FileNotFoundError):
            descriptor = _open_locked(stack, room)
            if descriptor is not None:
                TrashFolder(descriptor).empty()
                room.rmdir()


def _is_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _try_rmdir(folder: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False

    return True
