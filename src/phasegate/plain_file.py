"""Reading a file that a person named: regular, bounded, UTF-8. Anything else is refused by name, and nothing hangs."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError


class PlainFile(NamedTuple):
    """The text of a file and its permissions."""

    text: str
    mode: int


def read_plain_file(
    path: Path, largest_bytes: int, *, follow_link: bool = False, folder: int | None = None
) -> PlainFile:
    """The file's text; with `folder`, the file of that name in this open folder."""
    descriptor = _opened(path, follow_link, folder)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise refused(path, "is not a regular file")
        raw = _read_bounded(descriptor, largest_bytes)
    finally:
        os.close(descriptor)
    if raw is None:
        raise refused(path, f"is larger than {largest_bytes} bytes")
    try:
        return PlainFile(raw.decode(), stat.S_IMODE(about.st_mode))
    except UnicodeDecodeError as error:
        raise refused(path, f"is not UTF-8 (byte {error.start})") from error


def refused(path: Path, why: str) -> ConfigError:
    """The error for a file that is there but cannot be used."""
    return ConfigError(f"{path} {why}", "put a regular UTF-8 file there, or name another; nothing was changed")


def unreadable(path: Path, error: OSError | ValueError) -> ConfigError:
    """The error for a file that the system does not give us."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(f"cannot read {path}: {reason}", "check the name and its permissions")


def _opened(path: Path, follow_link: bool, folder: int | None) -> int:
    name = path if folder is None else path.name
    try:
        if not follow_link and stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise refused(path, "is a symbolic link")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_link else os.O_NOFOLLOW)
        return os.open(name, flags, dir_fd=folder)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _read_bounded(descriptor: int, largest_bytes: int) -> bytes | None:
    parts: list[bytes] = []
    left = largest_bytes + 1
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts) if left > 0 else None
