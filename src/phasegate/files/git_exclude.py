"""Exclude Phasegate's folders from the user's git without changing a file of their tree.

`init` imports this module, so it has few imports.
"""

from __future__ import annotations

import os
import stat

from phasegate.errors import ConfigError
from phasegate.files.durable_write import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def add_git_excludes(git_dir: os.PathLike[str] | str, folders: Iterable[str]) -> bool:
    """Add Phasegate's folders to `.git/info/exclude`; return True if a line was missing.

    Existing lines are never changed, since the file belongs to the user.
    """
    info = os.path.join(git_dir, "info")
    os.makedirs(info, exist_ok=True)
    path = os.path.join(info, "exclude")
    descriptor = os.open(
        path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o644
    )

    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{path} is not a file", "replace it with a regular file")

        present = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        lines = (os.fsencode(f"/{name}/") for name in folders)
        missing = [line for line in lines if line not in present.split(b"\n")]

        if missing:
            if present.endswith(b"\n") or not present:
                start = b""
            else:
                start = b"\n"

            write_all(descriptor, start + b"".join(line + b"\n" for line in missing))
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

    return bool(missing)
