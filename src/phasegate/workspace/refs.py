"""Moving refs: by compare and swap, under the lock of the repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import StateConflict
from phasegate.git import GitFailed, Place, git, make_durable
from phasegate.workspace.ref_log import Move, note_moves
from phasegate.workspace.repository import Repository, read_refs
from phasegate.workspace.repository_locks import RepositoryLock
from phasegate.workspace.user_checkout import Obstacle, checkout_on, held_index

BRANCHES = "refs/heads/"
SAVED = "refs/phasegate/saved/"
KEPT = "refs/phasegate/heads/"  # where each branch of ours was when we last moved it: a person may delete the branch
_OURS = f"{BRANCHES}feat/"


class RefMoved(NamedTuple):
    """Somebody was faster: the ref is not where it was expected. Nothing was changed."""

    ref: str
    expected: str | None
    actual: str | None


def move_refs(
    repository: Repository, lock: RepositoryLock, moves: Sequence[Move], reason: str, git_dir: Path | None = None
) -> RefMoved | None:
    """Move all refs or none, after they are noted as moves of ours. `git_dir` is the checkout that logs it too."""
    moves = [move for move in moves if move.old != move.new]
    if not moves:
        return None
    lock.announce(_lock_files(repository, git_dir or repository.git_dir, moves))
    note_moves(repository, lock, moves)
    zero = "0" * (40 if repository.hash_name == "sha1" else 64)
    commands = b"".join((*(_command(move, zero) for move in moves), *_kept(moves)))
    place = Place(git_dir or repository.git_dir, repository.objects)
    make_durable()  # git may put the ref on the disk at once: what it leads to must be there before
    try:
        arguments = ("update-ref", "--create-reflog", "-m", f"phasegate: {reason}", "--stdin", "-z")
        git(place, *arguments, stdin=commands, stdout_to=lock.descriptor)
    except GitFailed:
        moved = _first_moved(repository, moves)
        if moved is None:
            raise
        return moved
    return None


def advance_branch(
    repository: Repository, lock: RepositoryLock, branch: str, old: str | None, new: str, reason: str
) -> RefMoved | Obstacle | None:
    """Move a branch by compare and swap; a checkout of the person's that stands on it goes along, or nothing moves."""
    ref = BRANCHES + branch
    checkout = checkout_on(repository, ref) if old is not None and old != new else None
    if checkout is None and old != new:
        moved = move_refs(repository, lock, [Move(ref, old, new)], reason)
        return None if moved is not None and moved.actual == new else moved
    actual = read_refs(repository, ref).get(ref)
    if actual != old:
        return None if actual == new else RefMoved(ref, old, actual)
    if checkout is None or isinstance(checkout, Obstacle) or old is None:
        return checkout if isinstance(checkout, Obstacle) else None
    with held_index(repository, lock, checkout, old, new) as movement:
        if isinstance(movement, Obstacle) or (obstacle := movement.forward()) is not None:
            return movement if isinstance(movement, Obstacle) else obstacle
        try:
            moved = move_refs(repository, lock, [Move(ref, old, new)], reason, checkout.git_dir)
        except BaseException:
            movement.back()
            raise
        if moved is not None:
            movement.back()
        return moved


def _kept(moves: Sequence[Move]) -> Iterator[bytes]:
    """The same moves for the copies of our branches, from wherever those are."""
    for move in moves:
        if move.name.startswith(_OURS):
            copy = KEPT + move.name.removeprefix(BRANCHES)
            yield f"delete {copy}\0\0".encode() if move.new is None else f"update {copy}\0{move.new}\0\0".encode()


def branch_is_gone(repository: Repository, branch: str) -> StateConflict:
    """The error for a branch of ours that somebody deleted or renamed: what it held is kept, and how to go on."""
    kept = KEPT + branch
    commit = read_refs(repository, kept).get(kept)
    if commit is None:
        return StateConflict(f"there is no branch {branch}", "`phasegate status` shows what there is")
    return StateConflict(
        f"the branch {branch} was deleted or renamed; what it held is kept as {kept}",
        f"put it back, then give the same order again: git branch {branch} {commit[:12]}",
    )


def _command(move: Move, zero: str) -> bytes:
    if move.new is None:
        return f"delete {move.name}\0{move.old or zero}\0".encode()
    return f"update {move.name}\0{move.new}\0{move.old or zero}\0".encode()


def _first_moved(repository: Repository, moves: Sequence[Move]) -> RefMoved | None:
    now = read_refs(repository, *(move.name for move in moves))
    for move in moves:
        if now.get(move.name) != move.old:
            return RefMoved(move.name, move.old, now.get(move.name))
    return None


def _lock_files(repository: Repository, git_dir: Path, moves: Sequence[Move]) -> list[Path]:
    """Every lock file that git makes for these moves."""
    copies = [KEPT + move.name.removeprefix(BRANCHES) for move in moves if move.name.startswith(_OURS)]
    common = [repository.common_dir / f"{name}.lock" for name in (*(move.name for move in moves), *copies)]
    return [*common, repository.common_dir / "packed-refs.lock", git_dir / "HEAD.lock"]
