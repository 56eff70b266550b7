"""Move refs by compare-and-swap, under the repository lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import StateConflict
from phasegate.git import GitFailed, GitPaths, git, sync_written_folders
from phasegate.workspace.repository.ref_log import RefMove, log_moves
from phasegate.workspace.repository.repository import Repository, read_refs
from phasegate.workspace.repository.repository_locks import RepositoryLock
from phasegate.workspace.repository.user_checkout import (
    Obstacle,
    find_checkout_on_ref,
    locked_index,
)

BRANCH_PREFIX = "refs/heads/"
SAVED_PREFIX = "refs/phasegate/saved/"
BRANCH_COPY_PREFIX = (
    # The last position of each of our branches: a user may delete the branch
    "refs/phasegate/heads/"
)
_FEATURE_BRANCH_PREFIX = f"{BRANCH_PREFIX}feat/"


class RefMoved(NamedTuple):
    """The ref did not have the expected value. Nothing was changed."""

    ref: str
    expected: str | None
    actual: str | None


def move_refs(
    repository: Repository,
    lock: RepositoryLock,
    moves: Sequence[RefMove],
    reason: str,
    git_dir: Path | None = None,
) -> RefMoved | None:
    """Log the moves, then move all refs or none.

    `git_dir` is the git directory of a checkout whose reflog records the move too.
    """
    moves = [move for move in moves if move.old != move.new]
    if not moves:
        return None

    lock.announce_lock_files(_lock_files(repository, git_dir or repository.git_dir, moves))
    log_moves(repository, lock, moves)
    zero = "0" * (40 if repository.hash_name == "sha1" else 64)
    commands = b"".join(
        (*(_update_command(move, zero) for move in moves), *_branch_copy_commands(moves))
    )
    place = GitPaths(git_dir or repository.git_dir, repository.objects)
    # Git may write the refs immediately, so their objects must be on disk before
    sync_written_folders()

    try:
        arguments = ("update-ref", "--create-reflog", "-m", f"phasegate: {reason}", "--stdin", "-z")
        git(place, *arguments, stdin=commands, stdout_to=lock.descriptor)
    except GitFailed:
        moved = _find_moved_ref(repository, moves)
        if moved is None:
            raise
        return moved

    return None


def advance_branch(  # noqa: C901
    repository: Repository,
    lock: RepositoryLock,
    branch: str,
    old: str | None,
    new: str,
    reason: str,
) -> RefMoved | Obstacle | None:
    """Move a branch by compare-and-swap.

    If the user has the branch checked out, the checkout is updated too; if that is not possible,
    nothing is moved.
    """
    ref = BRANCH_PREFIX + branch
    if old is not None and old != new:
        checkout = find_checkout_on_ref(repository, ref)
    else:
        checkout = None

    if checkout is None and old != new:
        moved = move_refs(repository, lock, [RefMove(ref, old, new)], reason)
        if moved is not None and moved.actual == new:
            return None
        return moved

    actual = read_refs(repository, ref).get(ref)
    if actual != old:
        if actual == new:
            return None
        return RefMoved(ref, old, actual)

    if checkout is None or isinstance(checkout, Obstacle) or old is None:
        if isinstance(checkout, Obstacle):
            return checkout
        return None

    with locked_index(repository, lock, checkout, old, new) as movement:
        if isinstance(movement, Obstacle) or (obstacle := movement.apply()) is not None:
            if isinstance(movement, Obstacle):
                return movement
            return obstacle

        try:
            moved = move_refs(repository, lock, [RefMove(ref, old, new)], reason, checkout.git_dir)
        except BaseException:
            movement.revert()
            raise

        if moved is not None:
            movement.revert()
        return moved


def _branch_copy_commands(moves: Sequence[RefMove]) -> Iterator[bytes]:
    """Return git commands that make the same moves for the copies of Phasegate's branches.

    The copies are moved whatever their current value.
    """
    for move in moves:
        if move.name.startswith(_FEATURE_BRANCH_PREFIX):
            copy = BRANCH_COPY_PREFIX + move.name.removeprefix(BRANCH_PREFIX)
            yield (
                f"delete {copy}\0\0".encode()
                if move.new is None
                else f"update {copy}\0{move.new}\0\0".encode()
            )


def missing_branch_error(repository: Repository, branch: str) -> StateConflict:
    """Return the error for a deleted or renamed branch.

    It names the ref that keeps the work, and how to continue.
    """
    kept = BRANCH_COPY_PREFIX + branch
    commit = read_refs(repository, kept).get(kept)
    if commit is None:
        return StateConflict(
            f"there is no branch {branch}", "`phasegate status` shows the existing branches"
        )

    return StateConflict(
        f"the branch {branch} was deleted or renamed; its commits are kept as {kept}",
        f"restore it, then repeat the command: git branch {branch} {commit[:12]}",
    )


def _update_command(move: RefMove, zero: str) -> bytes:
    if move.new is None:
        return f"delete {move.name}\0{move.old or zero}\0".encode()
    return f"update {move.name}\0{move.new}\0{move.old or zero}\0".encode()


def _find_moved_ref(repository: Repository, moves: Sequence[RefMove]) -> RefMoved | None:
    now = read_refs(repository, *(move.name for move in moves))
    for move in moves:
        if now.get(move.name) != move.old:
            return RefMoved(move.name, move.old, now.get(move.name))
    return None


def _lock_files(repository: Repository, git_dir: Path, moves: Sequence[RefMove]) -> list[Path]:
    """Return every lock file that git creates for these moves."""
    copies = [
        BRANCH_COPY_PREFIX + move.name.removeprefix(BRANCH_PREFIX)
        for move in moves
        if move.name.startswith(_FEATURE_BRANCH_PREFIX)
    ]
    common = [
        repository.common_dir / f"{name}.lock" for name in (*(move.name for move in moves), *copies)
    ]
    return [*common, repository.common_dir / "packed-refs.lock", git_dir / "HEAD.lock"]
