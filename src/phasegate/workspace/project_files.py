"""Which files a repository has, as git sees them."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile

from phasegate.cage.environment import safe_path
from phasegate.cage.run import run
from phasegate.errors import EnvironmentUnavailable
from phasegate.git import git_program

TIMEOUT_S = 120
# Nothing that the repository or the person configured is run or changes the answer.
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.excludesFile=/dev/null", "core.quotePath=false")
_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def list_files(root: Path) -> list[str]:
    """The tracked files and those that are neither tracked nor ignored; none outside a repository."""
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    command = [
        git_program(),
        *settings,
        "ls-files",
        "-z",
        "--deduplicate",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    environment = {"PATH": safe_path(os.environ.get("PATH", "")), **_ENVIRONMENT}
    with TemporaryFile() as listed:  # a pipe of many small reads would cost as much as all of the tree (measured)
        done = run(command, cwd=root, env=environment, timeout_s=TIMEOUT_S, stdout_to=listed.fileno())
        if done.timed_out:
            raise EnvironmentUnavailable(f"git took more than {TIMEOUT_S} s to list the files of {root}")
        listed.seek(0)
        paths = listed.read() if done.ok else b""
    return paths.decode("utf-8", "surrogateescape").split("\0")[:-1]
