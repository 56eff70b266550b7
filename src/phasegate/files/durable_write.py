"""Writing so that a crash at any moment leaves all of the old or all of the new."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from itertools import count

from phasegate.files import create_new_file, open_folder

TYPE_CHECKING = False
# `init` writes with these functions, and does without pathlib
if TYPE_CHECKING:
    from pathlib import Path

_sequence = count()
_PREFIX = ".phasegate-"
_SUFFIX = ".tmp"
# Nobody takes that long between making such a file and renaming it
_STALE_AFTER_S = 60.0


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, in as many calls as the system needs."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_durably(descriptor: int, data: bytes, position: int) -> None:
    """Write every byte from a position on: on the disk when this returns.

    What was written before may not be.
    """
    # One call that writes and waits costs less than two
    at_once = getattr(os, "RWF_DSYNC", 0)
    view = memoryview(data)

    while view:
        try:
            written = os.pwritev(descriptor, [view], position, at_once)
        except OSError as error:
            if not at_once or error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise

            # An old kernel, or a sandbox that stands in for one
            at_once = 0
            continue

        view = view[written:]
        position = position + written

    if not at_once:
        os.fsync(descriptor)


def truncate_torn_line(descriptor: int) -> int:
    """Take away an unfinished last line, as a crash leaves it, so that the next stands by itself.

    The size then.
    """
    size = end = os.fstat(descriptor).st_size
    while end > 0 and os.pread(descriptor, 1, end - 1) != b"\n":
        end -= 1

    if end < size:
        os.ftruncate(descriptor, end)

    return end


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder, and those above it that are missing, for good.

    One that is there is left as it is.
    """
    if path.is_dir():
        return

    make_folder(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    sync_folders(path.parent, path.parent)


def sync_changed_folders(top: Path, since_ns: int, depth: int) -> None:
    """Make the names durable in every folder from `top` downwards that was changed since a moment.

    Other processes create and remove folders concurrently: one that is gone holds nothing that
    could be lost.
    """
    try:
        if top.stat().st_mtime_ns >= since_ns:
            sync_folders(top, top)

        if depth > 0:
            inner = [entry.name for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
        else:
            inner = []
    except FileNotFoundError:
        return

    # `heads` before `phasegate`: a branch before the copy of it that we keep
    for name in sorted(inner):
        sync_changed_folders(top / name, since_ns, depth - 1)


def sync_tree(top: Path) -> None:
    """Make a small folder durable as a whole: every plain file in it, and every name."""
    for entry in os.scandir(top):
        if entry.is_dir(follow_symlinks=False):
            sync_tree(top / entry.name)
        elif entry.is_file(follow_symlinks=False):
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    sync_folders(top, top)


def sync_file_system(folder: Path) -> None:
    """Sync everything that was written to the file system of a folder.

    Agents sync nothing, and write anywhere in it.
    """
    # No quick command comes here
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    try:
        descriptor = open_folder(folder)
    except OSError:
        # An agent removed it: reported where the work is read
        return

    try:
        # MacOS
        if not hasattr(libc, "syncfs"):
            os.sync()
        elif libc.syncfs(descriptor) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(descriptor)


def sync_folders(below: Path, top: Path) -> None:
    """Make the names in `below` durable, and those in every folder above it up to `top`."""
    for folder in (below, *below.parents):
        descriptor = open_folder(folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

        if folder == top:
            return


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file at once and for good."""
    folder = open_folder(path.parent)
    try:
        replace_file_at(folder, path.name, data, mode)
    finally:
        os.close(folder)


def replace_file_at(
    folder: int, name: str, data: bytes, mode: int, *, temp_folder: int | None = None
) -> None:
    """Replace a file in an open folder at once and for good.

    What stands under the name is never followed or opened.

    It is written under another name first, in the folder `aside` if there is to be no such name in
    this one.
    """
    temporary = f"{_PREFIX}{os.getpid()}-{next(_sequence)}{_SUFFIX}"
    if temp_folder is None:
        first = folder
    else:
        first = temp_folder

    descriptor = _create_temp_file(first, temporary, mode)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=first, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=first)
        raise
    finally:
        os.close(descriptor)

    os.fsync(folder)


def remove_stale_temp_files(folder: int) -> None:
    """Remove what a process that was killed left of a file that it was about to replace, a while
    ago.
    """
    for name in os.listdir(folder):
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
            with suppress(OSError):
                if (
                    time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                    > _STALE_AFTER_S
                ):
                    os.unlink(name, dir_fd=folder)


def _create_temp_file(folder: int, name: str, mode: int) -> int:
    try:
        return create_new_file(name, mode, folder)
    except FileExistsError:
        # Left by a process that had our number and was killed
        os.unlink(name, dir_fd=folder)
        return create_new_file(name, mode, folder)
