"""Determine the commit that a checkout starts from.

It is the feature branch plus the package's own work.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.errors import BranchUpdateBlocked, StateConflict
from phasegate.workspace.checkout.checkout import Assignment
from phasegate.workspace.repository.commit_log import find_latest_user_commit
from phasegate.workspace.repository.merge import merge_trees
from phasegate.workspace.repository.objects import Signature, write_tree_commit
from phasegate.workspace.repository.refs import (
    BRANCH_COPY_PREFIX,
    BRANCH_PREFIX,
    advance_branch,
    missing_branch_error,
)
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.user_checkout import Obstacle

BASE_REF = f"{BRANCH_PREFIX}base"
_MAX_ATTEMPTS = 20


class StartPoint(NamedTuple):
    """The commit that a checkout starts from.

    After a merge with conflicts, `files_tree` has the files with conflict markers, and `joins` is
    the commit that the next harvest merges with the start.
    """

    start: str
    # Head of the feature branch; the package's work is everything beyond it
    base: str
    # Refs that the agent's git contains: tags and the feature branch
    refs: dict[str, str]
    files_tree: str | None = None
    joins: str | None = None
    conflicts: tuple[str, ...] = ()
    # Last commit on top of the start that the agent's git already has; empty if there is none
    head: str = ""


def find_start_point(
    repository: Repository, assignment: Assignment, signature: Signature
) -> StartPoint:
    """Return the start point for the next job of an assignment.

    A package keeps its own commits, merged with the current feature branch.
    """
    # Try again if another agent of the package has moved the branch in the meantime
    for _ in range(_MAX_ATTEMPTS):
        found = _try_find_start_point(repository, assignment, signature)
        if found is not None:
            return found

    raise StateConflict(
        f"other processes keep moving {assignment.branch}", "run `phasegate dispatch` again"
    )


def _try_find_start_point(
    repository: Repository, assignment: Assignment, signature: Signature
) -> StartPoint | None:
    """Return where the package starts, or None if its branch has just moved."""
    refs, feature, own = _read_heads(repository, assignment)
    if own is None or own == feature or is_ancestor(repository, own, feature):
        if move_branch(repository, assignment.branch, own, feature):
            return StartPoint(start=feature, base=feature, refs=refs)
        return None

    if is_ancestor(repository, feature, own):
        return StartPoint(start=own, base=feature, refs=refs)

    merged = merge_trees(repository, own, feature)
    if merged.conflicts:
        return StartPoint(
            start=feature,
            base=feature,
            refs=refs,
            files_tree=merged.tree,
            joins=own,
            conflicts=merged.conflicts,
        )

    message = f"{assignment.work_id}: merge {assignment.feature_branch}"
    commit = write_tree_commit(repository, merged.tree, (own, feature), signature, message)
    if move_branch(repository, assignment.branch, own, commit):
        return StartPoint(start=commit, base=feature, refs=refs)

    return None


def reset_to_feature_head(repository: Repository, assignment: Assignment) -> StartPoint:
    """Reset the package's branch to the head of the feature branch."""
    refs, feature, own = _read_heads(repository, assignment)
    if not move_branch(repository, assignment.branch, own, feature):
        raise StateConflict(
            f"another process moved {assignment.branch}", "run `phasegate dispatch` again"
        )
    return StartPoint(start=feature, base=feature, refs=refs)


def _read_heads(
    repository: Repository, assignment: Assignment
) -> tuple[dict[str, str], str, str | None]:
    """Return the refs, and the heads of feature and package branch."""
    target, branch, kept = (
        BRANCH_PREFIX + assignment.feature_branch,
        BRANCH_PREFIX + assignment.branch,
        BRANCH_COPY_PREFIX + assignment.branch,
    )
    refs = read_refs(repository, target, branch, kept, "refs/tags")
    own = refs.pop(branch, None)
    last = refs.pop(kept, None)
    if target not in refs:
        raise missing_branch_error(repository, assignment.feature_branch)
    if own is None and last is not None and not is_ancestor(repository, last, refs[target]):
        # A new branch would not contain that work
        raise missing_branch_error(repository, assignment.branch)

    # So that an agent can compare its work with the user's code
    if start := find_latest_user_commit(repository, refs[target], assignment.slug):
        refs[BASE_REF] = start
    return refs, refs[target], own


def move_branch(repository: Repository, branch: str, old: str | None, new: str) -> bool:
    """Move a branch from `old` to `new`; return False if another process moved it first.

    Raise an error if the branch is checked out by the user and the checkout cannot be updated.
    """
    if old == new:
        return True

    with repository_lock(repository) as lock:
        stopped = advance_branch(
            repository=repository,
            lock=lock,
            branch=branch,
            old=old,
            new=new,
            reason=f"move {branch}",
        )

    if isinstance(stopped, Obstacle):
        if stopped.paths:
            paths = f" ({', '.join(stopped.paths)})"
        else:
            paths = ""

        where = f"{branch} is checked out in {stopped.folder}"
        raise BranchUpdateBlocked(
            f"{where}: {stopped.reason}{paths}", "commit or stash what is there, then run again"
        )

    return stopped is None
