"""What our own processes move in the person's repository, written down before it moves.

Where no sandbox holds, an agent's run is followed by a look at everything that changed outside of its checkout. What
we did meanwhile, in this process or another, must be told from it exactly: by the name, the old and the new object.

The log is written under the lock of the repository and kept short. Whoever looks back further than it reaches finds
fewer moves than there were, and takes the others for somebody else's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from phasegate.workspace.repository import Repository
from phasegate.workspace.repository_locks import RepositoryLock

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES = 512 * 1024


class Move(NamedTuple):
    """A ref, the object it must have now (None: it must not exist), and the one it gets (None: it goes).

    A file of the person's checkout is moved too: its absolute path, and the blobs.
    """

    name: str
    old: str | None
    new: str | None


def note_moves(repository: Repository, lock: RepositoryLock, moves: Iterable[Move], *, for_good: bool = False) -> None:
    """Write down moves that are about to be made. `lock` is held: one writer at a time, in the order of the moves.

    `for_good`: a power failure does not undo it.
    """
    path, number = _path(repository), last_move(repository)
    lines = [_line(number + count, move) for count, move in enumerate(moves, 1)]
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        fresh, kept = path.with_suffix(".new"), [*_latest_first(path)][::-1]
        fresh.write_bytes(b"".join(_line(*entry) for entry in kept[len(kept) // 2 :]))
        fresh.replace(path)
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        os.write(descriptor, b"\n" + b"".join(lines))  # a dead writer may have left half a line
        if for_good:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def last_move(repository: Repository) -> int:
    """The number of the latest move; 0 if there was none."""
    return next((number for number, _ in _latest_first(_path(repository))), 0)


def moves_since(repository: Repository, number: int) -> list[Move]:
    """The moves after a number, oldest first."""
    return [move for _, move in takewhile(lambda entry: entry[0] > number, _latest_first(_path(repository)))][::-1]


def is_explained(before: str | None, after: str | None, moves: Iterable[Move]) -> bool:
    """Whether moves of one name lead from one object to another. The last ones may have come after the second look."""
    reached = {before}
    for move in moves:
        if move.old in reached:
            reached.add(move.new)
    return after in reached


def _path(repository: Repository) -> Path:
    return repository.ours / "moves"


def _line(number: int, move: Move) -> bytes:
    return json.dumps([number, *move]).encode() + b"\n"  # `json` can write names that are no text


def _latest_first(path: Path) -> Iterator[tuple[int, Move]]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    yield from (entry for line in reversed(lines) if (entry := _parsed(line)) is not None)


def _parsed(line: bytes) -> tuple[int, Move] | None:
    try:
        number, name, old, new = json.loads(line)
    except ValueError:  # half a line
        return None
    return number, Move(name, old, new)
