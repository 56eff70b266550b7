"""Merge branches without a checkout.

The merged tree is created first and tested; then the ref is moved by compare-and-swap. A conflict
is a return value, and neither side is ever preferred. Nothing untested is merged: if the target has
moved in the meantime, the merge is prepared again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.git import git, run_git_as_user
from phasegate.workspace.repository.objects import Signature, write_tree_commit
from phasegate.workspace.repository.refs import BRANCH_PREFIX, missing_branch_error
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository.rewrite import put_files

# Two features that each add an entry to a changelog do not conflict: both entries are kept
_CHANGELOG_ATTRIBUTES = Path(__file__).with_name("changelog.gitattributes")


class MergedTree(NamedTuple):
    """The tree of a merge. Files with conflicts contain both sides, with conflict markers."""

    tree: str
    conflicts: tuple[str, ...]


class PreparedMerge(NamedTuple):
    """A merge commit that no branch points to yet: it can be checked out and tested."""

    target: str
    target_commit: str
    source_commit: str
    commit: str
    tree: str


class MergeConflict(NamedTuple):
    """The paths that both sides changed in different ways."""

    target: str
    source: str
    paths: tuple[str, ...]


class AlreadyMerged(NamedTuple):
    """The target already has the source's whole history.

    `commit` is the merge that brought it, and `base` its first parent; without such a merge,
    `commit` is the end of the target, and `base` is empty.
    """

    target: str
    commit: str
    base: str = ""


def merge_trees(repository: Repository, ours: str, theirs: str) -> MergedTree:
    """Merge two commits; files that conflict get conflict markers.

    Changelogs are merged by union.
    """
    arguments = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    fields = os.fsdecode(
        git(
            repository.place(),
            *arguments,
            settings=("-c", f"core.attributesFile={_CHANGELOG_ATTRIBUTES}"),
            accepted_exit_codes=(0, 1),
        ).stdout
    ).split("\0")
    return MergedTree(fields[0], tuple(dict.fromkeys(path for path in fields[1:] if path)))


def prepare_merge(
    repository: Repository,
    source: str,
    target: str,
    message: str,
    signature: Signature,
    source_commit: str = "",
    files: Mapping[str, str] | None = None,
) -> PreparedMerge | MergeConflict | AlreadyMerged:
    """Create the merge commit of a branch into another without moving any ref.

    `source_commit` is merged instead of the head of the source. `files` are written with the merge,
    whatever both sides have there: paths with their blob ids.
    """
    refs = read_refs(repository, BRANCH_PREFIX + source, BRANCH_PREFIX + target)
    for branch in (source, target):
        if BRANCH_PREFIX + branch not in refs:
            raise missing_branch_error(repository, branch)

    theirs = source_commit or refs[BRANCH_PREFIX + source]
    ours = refs[BRANCH_PREFIX + target]
    if is_ancestor(repository, theirs, ours):
        return find_merge(repository, target, theirs, ours)

    merged = merge_trees(repository, ours, theirs)
    conflicts = tuple(path for path in merged.conflicts if path not in (files or {}))
    if conflicts:
        return MergeConflict(target, source, conflicts)

    tree = put_files(repository, merged.tree, files or {})
    commit = write_tree_commit(repository, tree, (ours, theirs), signature, message)
    return PreparedMerge(
        target=target, target_commit=ours, source_commit=theirs, commit=commit, tree=tree
    )


def find_merge(repository: Repository, target: str, source: str, tip: str) -> AlreadyMerged:
    """Find the merge that brought a commit into the target, whose end is `tip`."""
    arguments = ("rev-list", "--first-parent", "--merges", "--parents", tip, f"^{source}")
    for line in git(repository.place(), *arguments).stdout.decode().splitlines():
        commit, base, *others = line.split()
        if source in others:
            return AlreadyMerged(target, commit, base)
    return AlreadyMerged(target, tip)


def find_fork_point(repository: Repository, branch: str, commit: str) -> str:
    """Return the merge base of a branch and a commit; the commit itself if there is none."""
    base = read_refs(repository, BRANCH_PREFIX + branch).get(BRANCH_PREFIX + branch)
    return (find_merge_base(repository, base, commit) if base else "") or commit


def find_merge_base(repository: Repository, one: str, other: str) -> str:
    """Return the newest common ancestor of two commits or branches; empty if there is none."""
    said = git(repository.place(), "merge-base", one, other, accepted_exit_codes=(0, 1))
    return said.stdout.decode().strip()


_COMMIT_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "pre-merge-commit")


class SigningFailed(NamedTuple):
    """A commit could not be signed."""

    reason: str


def is_signing_required(repository: Repository) -> bool:
    """Return True if the user's git settings require signed commits."""
    asked = run_git_as_user(repository.root, "config", "--type=bool", "--get", "commit.gpgsign")
    return asked.stdout.strip() == b"true"


def sign_merge(
    repository: Repository, prepared: PreparedMerge, message: str, signature: Signature
) -> PreparedMerge | SigningFailed:
    """Sign a merge with the user's signing program, if the user's settings require it.

    The signed commit has the same tree and parents.
    """
    if not is_signing_required(repository):
        return prepared

    who = signature.who
    when = f"{signature.when_s} {signature.zone}"
    env = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in _identity_fields(who, when)
    }
    parents = ("-p", prepared.target_commit, "-p", prepared.source_commit)
    said = run_git_as_user(
        repository.root,
        "commit-tree",
        prepared.tree,
        *parents,
        "-S",
        "-F",
        "-",
        env=env,
        stdin=message.encode(),
    )

    commit = said.stdout.decode(errors="replace").strip()
    if said.ok and commit:
        return prepared._replace(commit=commit)

    return SigningFailed(said.stderr.decode(errors="replace").strip()[:500] or "git gave no reason")


def _identity_fields(who: tuple[str, str], when: str) -> tuple[tuple[str, str], ...]:
    return ("NAME", who[0]), ("EMAIL", who[1]), ("DATE", when)


def list_commit_hooks(repository: Repository) -> tuple[str, ...]:
    """Return the names of the hooks that the user's git would run for a commit."""
    said = run_git_as_user(
        repository.root, "rev-parse", "--path-format=absolute", "--git-path", "hooks"
    )
    folder = os.fsdecode(said.stdout).strip()
    return tuple(
        name for name in _COMMIT_HOOKS if said.ok and os.access(f"{folder}/{name}", os.X_OK)
    )
