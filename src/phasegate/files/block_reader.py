"""Read files for a prompt: up to a size limit, and only from inside the repository."""

from __future__ import annotations

import os
from pathlib import Path

from phasegate.errors import ConfigError, UnreadableFile
from phasegate.files import open_regular_file


def read_up_to(path: Path, limit_bytes: int, *, follow_links: bool = True) -> tuple[bytes, int]:
    """Return the first bytes of a regular file, and the size of the whole file.

    A pipe, a device or a folder is refused without blocking.
    """
    try:
        descriptor = open_regular_file(path, follow_link=follow_links)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFile(
            f"cannot read {path}: {reason}", "pass a readable regular file", reason
        ) from error

    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit_bytes), os.fstat(descriptor).st_size


def reject_path_outside(root: Path, path: Path) -> None:
    """Refuse a path that a link leads out of the repository, or into its git directory.

    Any commit can contain such a link, and the content of its target would be sent to a model
    provider in the prompt.
    """
    named = Path(os.path.normpath(path.absolute()))
    real = path.resolve()
    home = root.resolve()
    if not (named.is_relative_to(root) or named.is_relative_to(home)):
        # The user named a file outside the repository
        return

    if not real.is_relative_to(home) or real.relative_to(home).parts[:1] == (".git",):
        raise ConfigError(
            f"{path} points outside the repository",
            "replace the link with the file itself; nothing was read or written",
        )
