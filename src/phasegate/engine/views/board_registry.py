"""Registry of the repositories on a user's boards, and the address of a running board.

Both are stored in the user's state directory. No agent sees that directory, and it contains no
secret: the token that admits a browser is only in the board's memory.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from phasegate.engine.views.overview import BOARD_FILE
from phasegate.errors import ConfigError
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.storage.location import find_root, state_home
from phasegate.storage.lock_holder import LockHolder, read_process_start


def list_repositories() -> tuple[Path, ...]:
    """List the repositories that the user has added, in that order."""
    try:
        data = _repositories_file().read_bytes()
    except FileNotFoundError:
        return ()

    # Not `splitlines`: a path may contain U+2028 or a carriage return
    lines = data.decode(errors="surrogateescape").split("\n")
    return tuple(Path(line) for line in lines if line)


def add_repository(folder: Path) -> Path:
    """Add the repository that contains a folder to every board of this user; return its root."""
    root = find_root(folder)
    if "\n" in str(root):
        raise ConfigError("the path contains a line feed", "move the repository")
    _save_repositories((*(other for other in list_repositories() if other != root), root))
    return root


def remove_repository(folder: Path) -> Path:
    """Remove a repository from the boards; a deleted one is given by its path."""
    path = Path(os.path.realpath(folder))
    repositories = list_repositories()
    if path not in repositories:
        raise ConfigError(f"{path} is not on any board", "phasegate board list")

    _save_repositories([other for other in repositories if other != path])
    return path


def assign_repository_names(roots: Sequence[Path]) -> dict[str, Path]:
    """Assign each repository a unique name for URLs, derived from its folder name."""
    roots_by_name: dict[str, Path] = {}

    for root in dict.fromkeys(roots):
        plain = re.sub(r"[^0-9A-Za-z]", "-", root.name) or "root"
        name = plain
        number = 2
        while name in roots_by_name:
            name = f"{plain}-{number}"
            number += 1

        roots_by_name[name] = root

    return roots_by_name


@contextmanager
def announce_board(address: str, since: str) -> Iterator[None]:
    """Publish the address of a running board for `status`. The address alone grants no access."""
    path = state_home(os.environ) / BOARD_FILE
    holder = LockHolder(os.getpid(), read_process_start(os.getpid()), address, since)
    make_folder(path.parent)
    replace_file(path, json.dumps(holder._asdict()).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _repositories_file() -> Path:
    return state_home(os.environ) / "repositories"


def _save_repositories(roots: Sequence[Path]) -> None:
    make_folder(_repositories_file().parent)
    replace_file(
        _repositories_file(),
        "".join(f"{root}\n" for root in roots).encode(errors="surrogateescape"),
    )
