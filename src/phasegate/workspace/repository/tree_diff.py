"""Compare trees by parsing git's raw output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.git import GitPaths
from phasegate.workspace.repository.git_cache import git_cached
from phasegate.workspace.repository.objects import PathVersion
from phasegate.workspace.repository.repository import Repository

RAW_DIFF_OPTIONS = (
    "-r",
    "-z",
    "--raw",
    "--no-abbrev",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
)
NO_MODE = "000000"


class Difference(NamedTuple):
    """A path that differs between two trees, with both versions; None where it does not exist."""

    path: str
    old: PathVersion | None
    new: PathVersion | None


def diff_trees(place: GitPaths, old: str, new: str) -> list[Difference]:
    """Return every path that differs between two trees or commits."""
    if old != new:
        return list(
            parse_raw_diff(git_cached(place, "diff-tree", *RAW_DIFF_OPTIONS, old, new).stdout)
        )
    return []


def list_tree_entries(repository: Repository, tree: str) -> list[bytes]:
    """Return every file of a tree or commit as git lists it.

    Each entry is `100644 blob <id>`, a tab, and the path.
    """
    listed = git_cached(repository.place(), "ls-tree", "-r", "-z", "--full-tree", tree).stdout
    return [entry for entry in listed.split(b"\0") if entry]


def resolve_tree(place: GitPaths, commit: str) -> str:
    """Return the tree of a commit."""
    return git_cached(place, "rev-parse", "--verify", f"{commit}^{{tree}}").stdout.decode().strip()


def parse_raw_diff(output: bytes) -> Iterator[Difference]:
    """Parse git's raw diff output: `:100644 100755 <id> <id> M`, NUL, path, NUL."""
    fields = output.split(b"\0")
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        yield parse_raw_entry(about, path)


def parse_raw_entry(about: bytes, path: bytes) -> Difference:
    """Parse an entry of `git diff-tree --raw`."""
    old_mode, new_mode, old_id, new_id, _ = about.decode().removeprefix(":").split(" ")
    if old_mode == NO_MODE:
        old = None
    else:
        old = PathVersion(old_mode, old_id)

    if new_mode == NO_MODE:
        new = None
    else:
        new = PathVersion(new_mode, new_id)

    return Difference(os.fsdecode(path), old, new)
