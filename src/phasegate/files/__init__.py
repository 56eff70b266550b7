"""Open, read and replace files that an agent may have changed.

Every function here guarantees, unless it says otherwise:
- No link is followed: not the last part of a path, and no part of a path below an open folder.
  `open_beneath` refuses every path that leads out of its folder.
- Nothing blocks. A pipe or a device is refused and not read.
- Only regular files are read, up to a limit. With `single_link`, a file with other hard links is
  refused as well: they may be outside the agent's folder.
- A file is replaced atomically and durably (`durable_write`).

Functions fail with an OSError, or return None where they say so. No other module calls `os.open`
with a path that an agent could have changed.

The hook imports this module, so it must stay fast to import.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20


def open_folder(path: Path | str, parent_fd: int | None = None) -> int:
    """Open a folder and return its descriptor.

    With `parent_fd`, the path is relative to that open folder.
    """
    return os.open(path, _FOLDER_FLAGS, dir_fd=parent_fd)


def open_regular_file(
    path: Path | str,
    parent_fd: int | None = None,
    *,
    follow_link: bool = False,
    single_link: bool = False,
) -> int:
    """Open a regular file for reading and return its descriptor.

    With `parent_fd`, the path is relative to that open folder. With `single_link`, a file that has
    other hard links is refused.
    """
    descriptor = os.open(
        path, _READ_FLAGS if follow_link else _READ_FLAGS | os.O_NOFOLLOW, dir_fd=parent_fd
    )
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and (about.st_nlink == 1 or not single_link):
        return descriptor

    os.close(descriptor)
    # Imported only on failure, to keep the hook fast
    from errno import EINVAL, EISDIR

    if stat.S_ISDIR(about.st_mode):
        raise OSError(EISDIR, "it is a folder, not a file", path)

    raise OSError(EINVAL, "not a regular file", path)


def create_new_file(path: Path | str, mode: int, parent_fd: int | None = None) -> int:
    """Create a file for writing and return its descriptor; fail if it exists."""
    return os.open(path, _CREATE_FLAGS, mode, dir_fd=parent_fd)


def read_descriptor(descriptor: int, limit_bytes: int) -> bytes | None:
    """Return all bytes of an open file.

    Return None if the file exceeds the limit, even if it grows while it is read.
    """
    parts: list[bytes] = []
    left = limit_bytes + 1
    while left > 0 and (part := os.read(descriptor, min(left, _CHUNK_BYTES))):
        parts.append(part)
        left -= len(part)

    if left > 0:
        return b"".join(parts)

    return None


def read_regular_file(
    path: Path | str, limit_bytes: int, parent_fd: int | None = None, *, single_link: bool = False
) -> bytes | None:
    """Return the bytes of a regular file.

    Return None for anything else, and for a file that is larger than the limit.
    """
    try:
        descriptor = open_regular_file(path, parent_fd, single_link=single_link)
    except (OSError, ValueError):
        return None

    try:
        return read_descriptor(descriptor, limit_bytes)
    except OSError:
        return None
    finally:
        os.close(descriptor)
