"""Submodules of a tree, written from what the person has of them: nothing is fetched.

Only files are written, without a git directory. What an agent changes in them is not harvested.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.git import GitFailed, Place, git
from phasegate.workspace.repository import Repository, git_dir_in, read_blobs, temporary_folder
from phasegate.workspace.tree_diff import tree_entries

_LFS = b"filter=lfs"
_DEEPEST = 8


class Submodule(NamedTuple):
    """A submodule of a tree. `git_dir` is the person's, None where they have not got the commit."""

    path: str
    commit: str
    git_dir: Path | None


def submodules_of(repository: Repository, tree: str) -> tuple[Submodule, ...]:
    """The submodules of a commit or tree, not those inside of them."""
    entries = [entry for entry in tree_entries(repository, tree) if entry.startswith(b"160000 ")]
    return tuple(_found(repository.root, repository.common_dir, *_read(entry)) for entry in entries)


def fill_submodules(repository: Repository, tree: str, folder: Path) -> tuple[str, ...]:
    """Write the files of each submodule that is here into its empty folder; the paths of those."""
    found = [one for one in submodules_of(repository, tree) if one.git_dir is not None]
    if not found:
        return ()
    with temporary_folder(repository) as room:
        return tuple(
            one.path
            for one in found
            if _fill(repository.place().git_dir, repository.root / one.path, one, folder / one.path, room, 0)
        )


def what_is_not_whole(repository: Repository, tree: str) -> Iterator[str]:
    """What of a tree agents and checks do not see as people do: submodules that are not here, files of Git LFS."""
    absent = [one.path for one in submodules_of(repository, tree) if one.git_dir is None]
    if absent:
        named = ", ".join(absent)
        yield f"submodules that are not here, so empty for agents and checks ({named}): git submodule update --init"
    patterns = sorted(set(_lfs_patterns(repository, tree)))
    if patterns:
        yield f"files of Git LFS are pointers for agents and checks, not their contents: {', '.join(patterns)}"


def _lfs_patterns(repository: Repository, tree: str) -> Iterator[str]:
    entries = (entry.partition(b"\t") for entry in tree_entries(repository, tree))
    named = [about.split()[2].decode() for about, _, path in entries if path.rpartition(b"/")[2] == b".gitattributes"]
    for data in read_blobs(repository.place(), named).values():
        yield from (line.split()[0].decode(errors="replace") for line in data.splitlines() if _LFS in line.split())


def _read(entry: bytes) -> tuple[str, str]:
    about, _, path = entry.partition(b"\t")
    return os.fsdecode(path), about.split()[2].decode()


def _found(root: Path, git_dir: Path, path: str, commit: str) -> Submodule:
    """Where the person's git keeps a submodule: as its own folder says, or by its usual name."""
    for candidate in (git_dir_in(root / path), git_dir / "modules" / path):
        if candidate is not None and (candidate / "objects").is_dir() and _has(candidate, commit):
            return Submodule(path, commit, candidate)
    return Submodule(path, commit, None)


def _has(git_dir: Path, commit: str) -> bool:
    said = git(Place(git_dir, git_dir / "objects"), "cat-file", "-e", f"{commit}^{{tree}}", accept=(0, 1, 128))
    return said.exit_code == 0


def _fill(ours: Path, root: Path, one: Submodule, folder: Path, room: Path, depth: int) -> bool:
    """Write a submodule, and those inside of it. A folder that is not empty, or is a link, is left alone."""
    if one.git_dir is None or folder.is_symlink() or not folder.is_dir() or any(folder.iterdir()):
        return False
    index = room / f"index-{len([*room.iterdir()])}"
    place = Place(ours, one.git_dir / "objects", index, folder)
    try:
        git(place, "read-tree", "-m", "-u", one.commit)
    except GitFailed:
        return False
    listed = git(place, "ls-tree", "-r", "-z", one.commit).stdout.split(b"\0") if depth < _DEEPEST else []
    for entry in (entry for entry in listed if entry.startswith(b"160000 ")):
        inner = _found(root, one.git_dir, *_read(entry))
        _fill(ours, root / inner.path, inner, folder / inner.path, room, depth + 1)
    return True
