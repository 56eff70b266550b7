"""Runs a command on this machine as if bubblewrap were not installed.

Usage: python -m tools.without_bubblewrap COMMAND [ARGUMENT ...]

As root it is covered in a mount namespace of the command's own; else PATH becomes a folder of links to everything
but it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = "bwrap"
_COVERED = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def run_without(command: list[str]) -> int:
    """The command's exit status."""
    found = shutil.which(PROGRAM)
    with tempfile.TemporaryDirectory(prefix="without-bubblewrap-") as folder:
        environment = dict(os.environ)
        if found and os.geteuid() == 0:
            empty = Path(folder, "empty")
            empty.touch(mode=0)
            command = [
                "unshare",
                "-m",
                "sh",
                "-c",
                _COVERED,
                "sh",
                str(empty),
                os.path.realpath(found),
                *command,
            ]
        elif found:
            environment["PATH"] = linked_without(environment["PATH"], Path(folder, "bin"))
        return subprocess.run(command, env=environment, check=False).returncode


def linked_without(path: str, folder: Path) -> str:
    """A PATH of the same programs, those that come first winning; without the one."""
    folder.mkdir()
    for place in map(Path, path.split(os.pathsep)):
        if os.access(place, os.R_OK | os.X_OK) and place.is_dir():
            for entry in place.iterdir():
                if entry.name != PROGRAM and not os.path.lexists(folder / entry.name):
                    (folder / entry.name).symlink_to(entry)
    return str(folder)


if __name__ == "__main__":
    sys.exit(run_without(sys.argv[1:]))
