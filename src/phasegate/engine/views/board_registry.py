"""Which repositories a board shows, and where a board can be reached.

Kept in the user's state directory.

No agent sees that directory, and no secret is kept in it: what lets a browser in is in the board's
memory alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from phasegate.engine.views.overview import BOARD_FILE
from phasegate.errors import ConfigError
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.storage.location import find_root, state_home
from phasegate.storage.lock_holder import LockHolder, read_process_start


def list_repositories() -> tuple[Path, ...]:
    """The repositories that a person has added, as they were added."""
    try:
        lines = (
            _repositories_file().read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        )
    except FileNotFoundError:
        return ()

    return tuple(Path(line) for line in lines if line)


def add_repository(folder: Path) -> Path:
    """Add the repository around a folder to every board of this user; its root."""
    root = find_root(folder)
    if "\n" in str(root):
        raise ConfigError("the path holds a line feed", "move the repository")
    _save_repositories((*(one for one in list_repositories() if one != root), root))
    return root


def remove_repository(folder: Path) -> Path:
    """Take a repository off the boards; one that is gone from the disk is named by its path."""
    path = Path(os.path.realpath(folder))
    left = [one for one in list_repositories() if one != path]
    if len(left) == len(list_repositories()):
        raise ConfigError(f"{path} is on no board", "phasegate board list")

    _save_repositories(left)
    return path


def assign_repository_names(roots: Sequence[Path]) -> dict[str, Path]:
    """Repositories by a name of their own, made of the folder's: it is part of addresses."""
    found: dict[str, Path] = {}

    for root in dict.fromkeys(roots):
        plain = (
            "".join(
                letter if letter.isascii() and letter.isalnum() else "-" for letter in root.name
            )
            or "root"
        )

        name = plain
        number = 2
        while name in found:
            name = f"{plain}-{number}"
            number = number + 1

        found[name] = root

    return found


@contextmanager
def announce_board(address: str, since: str) -> Iterator[None]:
    """While a board runs: where it is, for `status`. The address lets nobody in by itself."""
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
