"""Check that a promised file was delivered.

It must be a regular, non-empty file whose path contains no link.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_SAMPLE_BYTES = 4_096


def find_deliverable_problem(checkout: Path, path: str) -> str | None:
    """Return why a path of the checkout is not a delivered file, or None if it is.

    No link is followed.
    """
    parts = path.split("/")

    if (
        not path
        or path.startswith("/")
        or "\0" in path
        or any(part in ("", ".", "..") for part in parts)
    ):
        return "is not a path inside the checkout"

    folders = [_read_mode(checkout.joinpath(*parts[:depth])) for depth in range(1, len(parts))]
    if any(stat.S_ISLNK(mode) for mode in folders):
        return "is reached through a link"
    if all(stat.S_ISDIR(mode) for mode in folders):
        return _find_file_problem(checkout / path)

    return "is missing"


def _find_file_problem(path: Path) -> str | None:
    """Return why a path is not a non-empty regular file, or None if it is one."""
    mode = _read_mode(path)
    if not mode:
        return "is missing"
    if stat.S_ISLNK(mode):
        return "is a link"
    if stat.S_ISDIR(mode):
        return "is a folder"
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    if _is_blank(path):
        return "is empty"

    return None


def _read_mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (OSError, ValueError):
        return 0


def _is_blank(path: Path) -> bool:
    """Return True if the beginning of the file contains only whitespace."""
    try:
        with path.open("rb") as file:
            return not file.read(_SAMPLE_BYTES).strip()
    except OSError:
        return True
