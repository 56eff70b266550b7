"""Reading a text file that a person named: whatever is wrong with it is said by its name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError
from phasegate.files import open_plain, read_open


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
        raw, mode = read_open(descriptor, largest_bytes), stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    if raw is None:
        raise refused(path, f"is larger than {largest_bytes} bytes")
    try:
        return PlainFile(raw.decode(), mode)
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
    try:
        return open_plain(path if folder is None else path.name, folder, follow_link=follow_link)
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        if number == errno.ELOOP and not follow_link:
            raise refused(path, "is a symbolic link") from error
        if number == errno.EINVAL:
            raise refused(path, "is not a regular file") from error
        raise unreadable(path, error) from error
