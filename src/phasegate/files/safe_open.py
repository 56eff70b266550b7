"""Open files below a folder so that no path and no race condition can escape from it.

On Linux the kernel resolves the whole path below the folder (`openat2`). On other systems, in
sandboxes that forbid this call, and for paths that are too long for it, each part is opened
separately without following links.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from phasegate.files import open_folder

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The kernel fails with EAGAIN when something is renamed concurrently
_MAX_ATTEMPTS = 128


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder: int, parts: Sequence[str], flags: int = _FOLDER_FLAGS) -> int:
    """Open the path given by `parts` below an open folder.

    Raise OSError if a part is a link or leads out of the folder.
    """
    if any(part in ("", ".", "..") or "/" in part for part in parts):
        raise FileNotFoundError(errno.ENOENT, "not a path below the folder", "/".join(parts))

    if sys.platform == "linux":
        try:
            return open_with_openat2(folder, parts, flags)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.ENAMETOOLONG):
                raise

    return open_part_by_part(folder, parts, flags)


def open_with_openat2(folder: int, parts: Sequence[str], flags: int = _FOLDER_FLAGS) -> int:
    """Open a path like `open_beneath`, with a single `openat2` system call."""
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    how = _OpenHow(flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0, resolve)
    path = os.fsencode("/".join(parts) or ".")
    call = _syscall()

    for _ in range(_MAX_ATTEMPTS):
        found = int(
            call(_OPENAT2, folder, ctypes.c_char_p(path), ctypes.byref(how), ctypes.sizeof(how))
        )
        if found >= 0:
            return found
        if ctypes.get_errno() != errno.EAGAIN:
            break

    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "/".join(parts))


@cache
def _syscall() -> Callable[..., int]:
    return ctypes.CDLL(None, use_errno=True).syscall


def open_part_by_part(folder: int, parts: Sequence[str], flags: int = _FOLDER_FLAGS) -> int:
    """Open a path like `open_beneath`, one part at a time, where `openat2` is not available."""
    current = os.open(".", _FOLDER_FLAGS, dir_fd=folder)

    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        try:
            below = os.open(
                part,
                flags | os.O_NOFOLLOW | os.O_CLOEXEC if last else _FOLDER_FLAGS,
                dir_fd=current,
            )
        finally:
            os.close(current)

        current = below

    return current


@contextmanager
def folder_descriptor(path: Path | str, parent_fd: int | None = None) -> Iterator[int]:
    """Open a folder for the duration of a `with` block and yield its descriptor.

    With `parent_fd`, the path is relative to that open folder.
    """
    with closing_descriptor(open_folder(path, parent_fd)) as descriptor:
        yield descriptor


@contextmanager
def folder_beneath(root: int, path: str) -> Iterator[int]:
    """Open the folder at `path`, relative to the open folder `root`, for a `with` block."""
    with closing_descriptor(open_beneath(root, path.split("/") if path else ())) as descriptor:
        yield descriptor


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder_beneath(folder: int, parts: Sequence[str]) -> int:
    """Open the folder at `parts` below an open folder; create missing folders."""
    try:
        return open_beneath(folder, parts)
    except FileNotFoundError:
        parent = make_folder_beneath(folder, parts[:-1])

    try:
        os.mkdir(parts[-1], dir_fd=parent)
        os.fsync(parent)
    except FileExistsError:
        pass
    finally:
        os.close(parent)

    return open_beneath(folder, parts)
