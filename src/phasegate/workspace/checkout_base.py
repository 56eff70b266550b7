"""From which commit a checkout begins: the head of its feature's branch, with what its own branch has already."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.errors import BranchUpdateBlocked, StateConflict
from phasegate.workspace.checkout import Assignment
from phasegate.workspace.merge import merge_trees
from phasegate.workspace.objects import Signature, write_tree_commit
from phasegate.workspace.refs import BRANCH_COPY_PREFIX, BRANCH_PREFIX, advance_branch, missing_branch_error
from phasegate.workspace.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository_locks import repository_lock
from phasegate.workspace.user_checkout import Obstacle

_MAX_ATTEMPTS = 20


class StartPoint(NamedTuple):
    """`files` is another tree to begin with: a merge with conflicts, which the next harvest joins to `joins`."""

    start: str
    base: str  # the head of the feature's branch: a package's work is what it has besides that
    refs: dict[str, str]  # what the agent's own git shows: tags, and the feature's branch
    files_tree: str | None = None
    joins: str | None = None
    conflicts: tuple[str, ...] = ()
    head: str = ""  # commits upon the start that the agent's own git has already


def find_start_point(repository: Repository, assignment: Assignment, signature: Signature) -> StartPoint:
    """Where the work goes on. A package that has commits already keeps them, on top of what its feature has now."""
    for _ in range(_MAX_ATTEMPTS):  # another agent of the package may just have joined its work
        found = _try_find_start_point(repository, assignment, signature)
        if found is not None:
            return found
    raise StateConflict(f"{assignment.branch} keeps moving", "dispatch again")


def _try_find_start_point(repository: Repository, assignment: Assignment, signature: Signature) -> StartPoint | None:
    refs, feature, own = _read_heads(repository, assignment)
    if own is None or own == feature or is_ancestor(repository, own, feature):
        return StartPoint(feature, feature, refs) if move_branch(repository, assignment.branch, own, feature) else None
    if is_ancestor(repository, feature, own):
        return StartPoint(own, feature, refs)
    merged = merge_trees(repository, own, feature)
    if merged.conflicts:
        return StartPoint(feature, feature, refs, merged.tree, own, merged.conflicts)
    message = f"{assignment.work_id}: merge {assignment.feature_branch}"
    commit = write_tree_commit(repository, merged.tree, (own, feature), signature, message)
    return StartPoint(commit, feature, refs) if move_branch(repository, assignment.branch, own, commit) else None


def reset_to_feature_head(repository: Repository, assignment: Assignment) -> StartPoint:
    """Begin anew: the package's branch goes to the head of its feature's."""
    refs, feature, own = _read_heads(repository, assignment)
    if not move_branch(repository, assignment.branch, own, feature):
        raise StateConflict(f"{assignment.branch} moved meanwhile", "dispatch again")
    return StartPoint(feature, feature, refs)


def _read_heads(repository: Repository, assignment: Assignment) -> tuple[dict[str, str], str, str | None]:
    target, branch, kept = (
        BRANCH_PREFIX + assignment.feature_branch,
        BRANCH_PREFIX + assignment.branch,
        BRANCH_COPY_PREFIX + assignment.branch,
    )
    refs = read_refs(repository, target, branch, kept, "refs/tags")
    own, last = refs.pop(branch, None), refs.pop(kept, None)
    if target not in refs:
        raise missing_branch_error(repository, assignment.feature_branch)
    if own is None and last is not None and not is_ancestor(repository, last, refs[target]):
        raise missing_branch_error(repository, assignment.branch)  # a new one would begin without that work
    return refs, refs[target], own


def move_branch(repository: Repository, branch: str, old: str | None, new: str) -> bool:
    """Move a branch; False if somebody else did. A person's checkout in the way is an error."""
    if old == new:
        return True
    with repository_lock(repository) as lock:
        stopped = advance_branch(repository, lock, branch, old, new, f"move {branch}")
    if isinstance(stopped, Obstacle):
        paths = f" ({', '.join(stopped.paths)})" if stopped.paths else ""
        where = f"{branch} is checked out in {stopped.folder}"
        raise BranchUpdateBlocked(f"{where}: {stopped.reason}{paths}", "commit or stash what is there, then run again")
    return stopped is None
