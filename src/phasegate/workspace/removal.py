"""Removing or replacing what an agent left: at any depth, of any mode, and never through a link."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from phasegate.files import open_new
from phasegate.files.safe_open import folder_beneath, opened_folder
from phasegate.workspace.checkout_files import names_in

_PREFIX = ".removing-"


class Room:
    """A folder of ours to which things are moved before they are removed.

    A folder that is not empty is moved up into the room: no path gets long, and no descriptor is kept for a level.
    Two may empty the same room at once: what the other one was faster with is not there, and that is all.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._token = secrets.token_hex(6)
        self._count = 0

    def take(self, folder: int, name: str) -> None:
        """Remove a file, or an empty folder, from a folder; move any other folder into the room."""
        with suppress(FileNotFoundError):
            if not _is_folder(folder, name):
                os.unlink(name, dir_fd=folder)
            elif not _removed_empty(folder, name):
                self._count += 1
                os.chmod(name, 0o700, dir_fd=folder)
                new_name = f"{self._token}-{self._count}"
                os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=self._descriptor)

    def take_beneath(self, root: int, path: str) -> None:
        """Take out whatever lies at a path some levels below `root`, if that way is there."""
        folder, _, name = path.rpartition("/")
        with suppress(FileNotFoundError, NotADirectoryError), folder_beneath(root, folder) as descriptor:
            self.take(descriptor, name)

    def empty(self) -> None:
        """Remove all that was moved here."""
        while names := names_in(self._descriptor):
            for name in names:
                with suppress(FileNotFoundError):
                    self._empty_one(name)

    def _empty_one(self, name: str) -> None:
        if not _is_folder(self._descriptor, name):
            os.unlink(name, dir_fd=self._descriptor)
            return
        with opened_folder(name, self._descriptor) as folder:
            for entry in names_in(folder):
                self.take(folder, entry)
        os.rmdir(name, dir_fd=self._descriptor)


@contextmanager
def removal_room(beside: Path) -> Iterator[Room]:
    """A room in a folder, emptied and gone at the end, together with those that a dead process left there."""
    try:
        with ExitStack() as stack:
            descriptor = None
            while descriptor is None:  # somebody may take it for a left one before we hold it
                descriptor = _held(stack, Path(tempfile.mkdtemp(prefix=_PREFIX, dir=beside)))
            yield Room(descriptor)
    finally:
        _clear_all(beside)


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it. It is out of its place at once."""
    with removal_room(path.parent) as room, opened_folder(path.parent) as above:
        room.take(above, path.name)


def _held(stack: ExitStack, room: Path) -> int | None:
    """A descriptor of a room with a lock on it; None if its owner lives, or it is gone."""
    try:
        descriptor = stack.enter_context(opened_folder(room))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor if room.stat().st_ino == os.fstat(descriptor).st_ino else None
    except (BlockingIOError, FileNotFoundError):
        return None


def lay_file(folder: Path, name: str, text: str) -> None:
    """Put a file of ours into a folder that an agent may have written to: whatever lay under its name is gone first.

    A link there could lead our write to any file of the person, and a pipe could hold it up for ever.
    """
    with opened_folder(folder) as root:
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=root)
        except OSError:  # a folder
            with removal_room(folder.parent) as room:
                room.take(root, name)
        _write_new(root, name, text)


def lay_folder(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """The same for a folder of ours with these files."""
    with opened_folder(folder) as root, removal_room(folder.parent) as room:
        room.take(root, name)
        os.mkdir(name, 0o755, dir_fd=root)
        with opened_folder(name, root) as made:
            for one, text in files.items():
                _write_new(made, one, text)


def _write_new(folder: int, name: str, text: str) -> None:
    with os.fdopen(open_new(name, 0o644, folder), "w", encoding="utf-8") as file:
        file.write(text)


def _clear_all(beside: Path) -> None:
    """Empty and remove every room whose owner is done or dead."""
    for room in beside.glob(_PREFIX + "*"):
        with ExitStack() as stack, suppress(FileNotFoundError):
            descriptor = _held(stack, room)
            if descriptor is not None:
                Room(descriptor).empty()
                room.rmdir()


def _is_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _removed_empty(folder: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
