"""Write files so that a crash at any time leaves either the old or the new content."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from itertools import count

from phasegate.files import create_new_file, open_folder

TYPE_CHECKING = False
# `init` uses this module and avoids importing pathlib
if TYPE_CHECKING:
    from pathlib import Path

_sequence = count()
_PREFIX = ".phasegate-"
_SUFFIX = ".tmp"
# No live process takes this long between creating a temporary file and renaming it
_STALE_AFTER_S = 60.0


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, in as many calls as needed."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_durably(descriptor: int, data: bytes, position: int) -> None:
    """Write all bytes at a position; they are on disk when the call returns.

    Earlier writes to the file may still be unsynced.
    """
    # One call that writes and syncs is cheaper than two
    at_once = getattr(os, "RWF_DSYNC", 0)
    view = memoryview(data)

    while view:
        try:
            written = os.pwritev(descriptor, [view], position, at_once)
        except OSError as error:
            if not at_once or error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise

            # An old kernel, or a sandbox that emulates one
            at_once = 0
            continue

        view = view[written:]
        position = position + written

    if not at_once:
        os.fsync(descriptor)


def truncate_torn_line(descriptor: int) -> int:
    """Remove an incomplete last line that a crash left, and return the new size.

    Otherwise the next line would be appended to the incomplete one.
    """
    size = end = os.fstat(descriptor).st_size
    while end > 0 and os.pread(descriptor, 1, end - 1) != b"\n":
        end -= 1

    if end < size:
        os.ftruncate(descriptor, end)

    return end


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Create a folder and its missing parents durably.

    An existing folder is left unchanged.
    """
    if path.is_dir():
        return

    make_folder(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    sync_folders(path.parent, path.parent)


def sync_changed_folders(top: Path, since_ns: int, depth: int) -> None:
    """Sync `top` and every folder below it, up to `depth` levels, that changed since a time.

    Other processes create and remove folders concurrently. A folder that was removed has nothing to
    sync.
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

    # Sorted, so that a branch (`heads`) is synced before our copy of it (`phasegate`)
    for name in sorted(inner):
        sync_changed_folders(top / name, since_ns, depth - 1)


def sync_tree(top: Path) -> None:
    """Sync a small folder completely: every regular file and every directory entry."""
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

    Used after an agent has run: agents do not sync, and may write anywhere in the folder.
    """
    # Imported here because it is slow; no fast command calls this function
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    try:
        descriptor = open_folder(folder)
    except OSError:
        # An agent removed the folder; this is reported when the work is read
        return

    try:
        # macOS has no syncfs
        if not hasattr(libc, "syncfs"):
            os.sync()
        elif libc.syncfs(descriptor) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(descriptor)


def sync_folders(below: Path, top: Path) -> None:
    """Sync the folder `below` and every parent folder up to `top`."""
    for folder in (below, *below.parents):
        descriptor = open_folder(folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

        if folder == top:
            return


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically and durably."""
    folder = open_folder(path.parent)
    try:
        replace_file_at(folder, path.name, data, mode)
    finally:
        os.close(folder)


def replace_file_at(
    folder: int, name: str, data: bytes, mode: int, *, temp_folder: int | None = None
) -> None:
    """Replace a file in an open folder, atomically and durably.

    An existing file or link of that name is never opened or followed. The data is written to a
    temporary file first. Pass `temp_folder` if that file must not appear in `folder`.
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
    """Remove old temporary files that killed processes left behind."""
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
        # Left by a killed process that had the same pid
        os.unlink(name, dir_fd=folder)
        return create_new_file(name, mode, folder)
