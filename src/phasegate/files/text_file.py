"""Read a text file that the user named. Error messages contain the file's path."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError
from phasegate.files import open_regular_file, read_descriptor


class TextFile(NamedTuple):
    """The text of a file and its permissions."""

    text: str
    mode: int


def read_text_file(
    path: Path, max_bytes: int, *, follow_link: bool = False, parent_fd: int | None = None
) -> TextFile:
    """Return the text and permissions of a file.

    With `parent_fd`, the path is relative to that open folder.
    """
    descriptor = _open_for_reading(path, follow_link, parent_fd)

    try:
        raw = read_descriptor(descriptor, max_bytes)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)

    if raw is None:
        raise unusable_file_error(path, f"is larger than {max_bytes} bytes")

    try:
        return TextFile(raw.decode(), mode)
    except UnicodeDecodeError as error:
        raise unusable_file_error(path, f"is not UTF-8 (byte {error.start})") from error


def unusable_file_error(path: Path, reason: str) -> ConfigError:
    """Return the error for a file that exists but cannot be used."""
    return ConfigError(
        f"{path} {reason}",
        "replace it with a regular UTF-8 file, or name another; nothing was changed",
    )


def unreadable_file_error(path: Path, error: OSError | ValueError) -> ConfigError:
    """Return the error for a file that cannot be opened or decoded."""
    if isinstance(error, OSError):
        reason = error.strerror
    else:
        reason = str(error)
    return ConfigError(f"cannot read {path}: {reason}", "check the name and its permissions")


def _open_for_reading(path: Path, follow_link: bool, parent_fd: int | None) -> int:
    """Open a regular file; raise ConfigError for a link or another kind."""
    try:
        return open_regular_file(
            path if parent_fd is None else path.name, parent_fd, follow_link=follow_link
        )
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        if number == errno.ELOOP and not follow_link:
            raise unusable_file_error(path, "is a symbolic link") from error
        if number == errno.EINVAL:
            raise unusable_file_error(path, "is not a regular file") from error
        raise unreadable_file_error(path, error) from error
