"""Log ref moves by Phasegate's own processes in the user's repository before they are made.

Without a sandbox, an agent's run is followed by a search for changes outside of its checkout.
Phasegate's own changes, by this process or another, must be recognized exactly: by ref name, old
and new object.

The log is written under the repository lock and kept short. A reader that looks further back than
the log reaches finds fewer moves, and attributes the other changes to unknown processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.repository_locks import RepositoryLock

_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LOG_BYTES = 512 * 1024


class RefMove(NamedTuple):
    """A move of a ref from one object to another.

    If `old` is None, the ref must not exist; if `new` is None, the ref is deleted. Writes to the
    user's checkout are logged in the same form, with the absolute path and the blobs.
    """

    name: str
    old: str | None
    new: str | None


def log_moves(
    repository: Repository, lock: RepositoryLock, moves: Iterable[RefMove], *, durable: bool = False
) -> None:
    """Log moves that are about to be made.

    The caller must hold `lock`, so that there is one writer at a time. With `durable`, the entries
    survive a power failure.
    """
    path = _log_path(repository)
    number = last_move_number(repository)
    lines = [_encode_move(number + count, move) for count, move in enumerate(moves, 1)]

    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        fresh = path.with_suffix(".new")
        kept = [*_read_newest_first(path)][::-1]
        fresh.write_bytes(b"".join(_encode_move(*entry) for entry in kept[len(kept) // 2 :]))
        fresh.replace(path)

    descriptor = os.open(path, _OPEN_FLAGS, 0o600)
    try:
        # A dead writer may have left an incomplete line
        os.write(descriptor, b"\n" + b"".join(lines))
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def last_move_number(repository: Repository) -> int:
    """Return the number of the latest move, or 0 if there was none."""
    return next((number for number, _ in _read_newest_first(_log_path(repository))), 0)


def moves_since(repository: Repository, number: int) -> list[RefMove]:
    """Return the moves after a move number, oldest first."""
    return [
        move
        for _, move in takewhile(
            lambda entry: entry[0] > number, _read_newest_first(_log_path(repository))
        )
    ][::-1]


def is_explained_by_moves(before: str | None, after: str | None, moves: Iterable[RefMove]) -> bool:
    """Return True if the logged moves of one ref lead from the object `before` to `after`.

    Moves that were made after `after` was read are allowed at the end.
    """
    reached = {before}
    for move in moves:
        if move.old in reached:
            reached.add(move.new)

    return after in reached


def _log_path(repository: Repository) -> Path:
    return repository.own_folder / "moves"


def _encode_move(number: int, move: RefMove) -> bytes:
    # `json` can encode names that are not valid UTF-8
    return json.dumps([number, *move]).encode() + b"\n"


def _read_newest_first(path: Path) -> Iterator[tuple[int, RefMove]]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    yield from (entry for line in reversed(lines) if (entry := _parse_line(line)) is not None)


def _parse_line(line: bytes) -> tuple[int, RefMove] | None:
    try:
        number, name, old, new = json.loads(line)
    except ValueError:
        # An incomplete line
        return None
    return number, RefMove(name, old, new)
