"""Resolve, read and write the files of a checkout that an ACP agent names.

Paths are opened part by part without following links, so that the checked file is the file that is
opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.repo_path import find_path_problem
from phasegate.core.paths.scope import Scope
from phasegate.errors import ConfigError
from phasegate.files import create_new_file
from phasegate.files.safe_open import (
    closing_descriptor,
    folder_descriptor,
    make_folder_beneath,
    open_beneath,
)
from phasegate.files.text_file import read_text_file

MAX_FILE_BYTES = 8 * 1024**2
MAX_DISPLAY_CHARS = 4096


class FileAccessRefused(Exception):
    """Access to this path is not allowed; the message explains why."""


class FileMissing(Exception):
    """The file does not exist."""


class AcpFileAccess(NamedTuple):
    """The files that an agent may access.

    `aliases` are other names of the checkout; `readable` are files outside of it.
    """

    checkout: str
    scope: Scope
    # allowed only in a sandbox
    can_run_commands: bool
    aliases: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def get_checkout_path(self, path: str) -> str:
        """Return the path relative to the checkout; the protocol has absolute paths only."""
        if not path.startswith("/"):
            raise FileAccessRefused(f"{path or 'an empty path'} is not absolute")

        for root in (self.checkout, *self.aliases):
            if path.startswith(f"{root}/"):
                name = path[len(root) + 1 :]
                if problem := find_path_problem(name):
                    raise FileAccessRefused(f"{path} {problem}")
                return name

        raise FileAccessRefused(f"{path} is outside the checkout")

    def format_path(self, path: str) -> str:
        """Return a path for display: relative to the checkout, if it is inside."""
        if not path.startswith("/"):
            return path

        for root in (self.checkout, *self.aliases):
            if path.startswith(f"{root}/"):
                path = path[len(root) :]
                break

        return path.removeprefix("/")[:MAX_DISPLAY_CHARS]

    def require_writable(self, path: str) -> str:
        """Return the relative path of a file that the package may change; refuse others."""
        name = self.get_checkout_path(path)
        scope = self.scope
        if not (scope.covers(name) or scope.is_lock_file(name) or scope.is_litter(name)):
            raise FileAccessRefused(f"{name} is not in the file scope of this work package")

        self._refuse_links(name)
        return name

    def require_readable(self, path: str) -> None:
        """Refuse paths outside the checkout, except the task's readable files."""
        if path not in (*self.readable, self.checkout, *self.aliases):
            self._refuse_links(self.get_checkout_path(path))

    def _refuse_links(self, name: str) -> None:
        path = Path(self.checkout)
        for part in name.split("/"):
            path /= part
            if path.is_symlink():
                raise FileAccessRefused(f"the path of {name} contains a link")

    def read_text(self, path: str) -> str:
        """Return the whole text of a file."""
        if path in self.readable:
            return _read_text(Path(path), None)

        name = self.get_checkout_path(path)
        with _open_parent_folder(self.checkout, name, make=False) as (folder, last):
            return _read_text(Path(last), folder)

    def write_text(self, path: str, text: str) -> str:
        """Write a file in scope, create its folders, and return its relative path."""
        name = self.require_writable(path)
        data = text.encode("utf-8", "surrogatepass")
        with _open_parent_folder(self.checkout, name, make=True) as (folder, last):
            _write_bytes(folder, last, data)
        return name


@contextmanager
def _open_parent_folder(root: str, name: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """Open the folder that contains the file; yield its descriptor and the file's name."""
    *folders, last = name.split("/")
    with (
        folder_descriptor(root) as top,
        closing_descriptor(_open_folders(top, folders, name, make=make)) as folder,
    ):
        yield folder, last


def _open_folders(top: int, folders: list[str], name: str, *, make: bool) -> int:
    try:
        if make:
            return make_folder_beneath(top, folders)
        return open_beneath(top, folders)
    except FileNotFoundError:
        raise FileMissing(name) from None
    except OSError as error:
        raise FileAccessRefused(f"{name} cannot be opened: {error.strerror}") from None


@contextmanager
def _ignore_errno(number: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != number:
            raise


def _read_text(path: Path, folder: int | None) -> str:
    try:
        return read_text_file(path, MAX_FILE_BYTES, parent_fd=folder).text
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise FileMissing(path.name) from None
        raise FileAccessRefused(error.message) from None


def _write_bytes(folder: int, name: str, data: bytes) -> None:
    """Write the file in place, or replace it with a new file if it has other hard links."""
    try:
        with os.fdopen(_open_for_writing(folder, name), "wb") as file:
            file.write(data)
    except OSError as error:
        raise FileAccessRefused(f"{name} cannot be written: {error.strerror}") from None


def _open_for_writing(folder: int, name: str) -> int:
    """Open a file for writing; a file with several hard links is replaced, not truncated."""
    mode = 0o666
    with _ignore_errno(errno.ENOENT):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise FileAccessRefused(f"{name} is not a regular file")

        mode = stat.S_IMODE(status.st_mode)
        if status.st_nlink == 1:
            return _open_truncated(folder, name)

        os.unlink(name, dir_fd=folder)

    return create_new_file(name, mode, folder)


def _open_truncated(folder: int, name: str) -> int:
    descriptor = os.open(
        name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
    )
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        os.truncate(descriptor, 0)
        return descriptor

    os.close(descriptor)
    raise FileAccessRefused(f"{name} changed while it was opened")
