"""Fill the submodules of a tree from the user's copies, without fetching anything.

Only files are written, without a git directory. An agent's changes in submodules cannot be
harvested; they are reported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.repo_path import list_path_and_parents
from phasegate.git import GitFailed, GitPaths, git
from phasegate.workspace.repository.disk_files import CheckoutLimits, inspect_path
from phasegate.workspace.repository.ignore import IgnoreRules
from phasegate.workspace.repository.repository import (
    Repository,
    read_blobs,
    resolve_git_dir,
    temporary_folder,
)
from phasegate.workspace.repository.tree_diff import list_tree_entries

_LFS_ATTRIBUTE = b"filter=lfs"
_MAX_NESTING = 8
_MAX_FOLDER_DEPTH = 64
_MAX_REPORTED_PATHS = 100
_SHA1_DIGITS = 40


class Submodule(NamedTuple):
    """A submodule of a tree. `git_dir` is the user's copy; None if it lacks the commit."""

    path: str
    commit: str
    git_dir: Path | None


def list_submodules(repository: Repository, tree: str) -> tuple[Submodule, ...]:
    """Return the submodules of a commit or tree, without nested ones."""
    entries = [
        entry for entry in list_tree_entries(repository, tree) if entry.startswith(b"160000 ")
    ]
    return tuple(
        _locate_submodule(repository.root, repository.common_dir, *_parse_tree_entry(entry))
        for entry in entries
    )


def fill_submodules(repository: Repository, tree: str, folder: Path) -> tuple[str, ...]:
    """Write the files of each available submodule into its empty folder; return their paths."""
    found = [one for one in list_submodules(repository, tree) if one.git_dir is not None]
    if not found:
        return ()

    with temporary_folder(repository) as room:
        return tuple(
            one.path
            for one in found
            if _fill_submodule(
                ours=repository.place().git_dir,
                root=repository.root / one.path,
                submodule=one,
                folder=folder / one.path,
                temp_folder=room,
                depth=0,
            )
        )


def describe_incomplete_content(repository: Repository, tree: str) -> Iterator[str]:
    """Yield the parts of a tree that agents and checks cannot see: missing submodules, Git LFS
    files.
    """
    absent = [one.path for one in list_submodules(repository, tree) if one.git_dir is None]
    if absent:
        named = ", ".join(absent)
        yield (
            f"missing submodules are empty for agents and checks ({named}): git submodule"
            " update --init"
        )

    patterns = sorted(set(_lfs_patterns(repository, tree)))
    if patterns:
        yield (
            "agents and checks see Git LFS pointers instead of the file contents:"
            f" {', '.join(patterns)}"
        )


def find_submodule_changes(
    repository: Repository,
    tree: str,
    filled: Iterable[str],
    root: int,
    stamp_ns: int,
    litter: tuple[str, ...],
) -> tuple[str, ...]:
    """Return the first changes in filled submodules: changed, removed, or new and not ignored
    files.

    `root` is the open checkout; a file that was not modified since `stamp_ns` is unchanged.
    """
    known = frozenset(filled)
    found: list[str] = []

    for one in list_submodules(repository, tree) if known else ():
        if one.path in known and one.git_dir is not None and len(found) < _MAX_REPORTED_PATHS:
            files = dict(_list_submodule_files(repository, repository.root / one.path, one, 0))
            try:
                found += _find_altered_files(
                    files, _load_ignore_rules(one.git_dir, files, litter), root, one.path, stamp_ns
                )
            except FileNotFoundError:
                # The submodule's folder was removed
                found.append(one.path)

    return tuple(found[:_MAX_REPORTED_PATHS])


def _list_submodule_files(
    repository: Repository, root: Path, submodule: Submodule, depth: int
) -> Iterator[tuple[str, str]]:
    """Yield the files of a submodule and its nested submodules, with their ids.

    Paths are relative to the checkout.
    """
    if submodule.git_dir is None or depth > _MAX_NESTING:
        return

    place = GitPaths(submodule.git_dir, submodule.git_dir / "objects")
    for entry in filter(
        None, git(place, "ls-tree", "-r", "-z", submodule.commit).stdout.split(b"\0")
    ):
        path, object_id = _parse_tree_entry(entry)
        if entry.startswith(b"160000 "):
            inner = _locate_submodule(root, submodule.git_dir, path, object_id)
            below = inner._replace(path=f"{submodule.path}/{path}")
            yield from _list_submodule_files(repository, root / path, below, depth + 1)
        else:
            yield f"{submodule.path}/{path}", object_id


def _load_ignore_rules(
    git_dir: Path, files: dict[str, str], litter: tuple[str, ...]
) -> IgnoreRules:
    """Load the ignore rules of a submodule."""
    own = {
        path.rpartition("/")[0]: blob
        for path, blob in files.items()
        if path.rpartition("/")[2] == ".gitignore"
    }
    try:
        texts = read_blobs(GitPaths(git_dir, git_dir / "objects"), own.values())
    except GitFailed:
        # The blob belongs to a nested submodule, which has another object store
        texts = {}

    return IgnoreRules({folder: texts.get(blob, b"") for folder, blob in own.items()}, litter)


def _find_altered_files(
    files: dict[str, str], rules: IgnoreRules, root: int, top: str, stamp_ns: int
) -> Iterator[str]:
    """Yield the files of a submodule that were changed, added or removed."""
    gone = set(files)
    parents = {parent for path in files for parent in list_path_and_parents(path)[1:]}

    for folder, folders, names, descriptor in os.fwalk(top, dir_fd=root, follow_symlinks=False):
        for name in (*names, *folders):
            path = f"{folder}/{name}"
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode):
                continue

            gone.discard(path)
            is_touched = about.st_ctime_ns >= stamp_ns and (
                path in files or not rules.is_ignored(path, is_folder=False)
            )
            if is_touched and not _is_unchanged(files.get(path), descriptor, name, about):
                yield path

        is_deep = folder.count("/") - top.count("/") > _MAX_FOLDER_DEPTH
        paths = {name: f"{folder}/{name}" for name in folders}
        folders[:] = [
            name
            for name, path in paths.items()
            if path in parents or not (is_deep or rules.is_ignored(path, is_folder=True))
        ]

    yield from sorted(gone)


def _is_unchanged(object_id: str | None, folder: int, name: str, about: os.stat_result) -> bool:
    if object_id is None or not (stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)):
        return False

    if len(object_id) == _SHA1_DIGITS:
        hash_name = "sha1"
    else:
        hash_name = "sha256"

    return inspect_path(folder, name, about, hash_name, CheckoutLimits()).object_id == object_id


def _lfs_patterns(repository: Repository, tree: str) -> Iterator[str]:
    """Yield the patterns that .gitattributes files hand over to Git LFS."""
    entries = (entry.partition(b"\t") for entry in list_tree_entries(repository, tree))
    named = [
        about.split()[2].decode()
        for about, _, path in entries
        if path.rpartition(b"/")[2] == b".gitattributes"
    ]

    for data in read_blobs(repository.place(), named).values():
        yield from (
            line.split()[0].decode(errors="replace")
            for line in data.splitlines()
            if _LFS_ATTRIBUTE in line.split()
        )


def _parse_tree_entry(entry: bytes) -> tuple[str, str]:
    about, _, path = entry.partition(b"\t")
    return os.fsdecode(path), about.split()[2].decode()


def _locate_submodule(root: Path, git_dir: Path, path: str, commit: str) -> Submodule:
    """Return a submodule with the git directory of the user's copy.

    The `.git` file in the submodule's folder is tried first, then the usual place in `modules`.
    """
    for candidate in (resolve_git_dir(root / path), git_dir / "modules" / path):
        if (
            candidate is not None
            and (candidate / "objects").is_dir()
            and _has_commit(candidate, commit)
        ):
            return Submodule(path, commit, candidate)

    return Submodule(path, commit, None)


def _has_commit(git_dir: Path, commit: str) -> bool:
    said = git(
        GitPaths(git_dir, git_dir / "objects"),
        "cat-file",
        "-e",
        f"{commit}^{{tree}}",
        accepted_exit_codes=(0, 1, 128),
    )
    return said.exit_code == 0


def _fill_submodule(
    ours: Path, root: Path, submodule: Submodule, folder: Path, temp_folder: Path, depth: int
) -> bool:
    """Write the files of a submodule and its nested submodules; return False if it was skipped.

    A folder that is not empty or is a link is skipped.
    """
    if (
        submodule.git_dir is None
        or folder.is_symlink()
        or not folder.is_dir()
        or any(folder.iterdir())
    ):
        return False

    index = temp_folder / f"index-{len([*temp_folder.iterdir()])}"
    place = GitPaths(ours, submodule.git_dir / "objects", index, folder)
    try:
        git(place, "read-tree", "-m", "-u", submodule.commit)
    except GitFailed:
        return False

    if depth < _MAX_NESTING:
        listed = git(place, "ls-tree", "-r", "-z", submodule.commit).stdout.split(b"\0")
    else:
        listed = []

    for entry in (entry for entry in listed if entry.startswith(b"160000 ")):
        inner = _locate_submodule(root, submodule.git_dir, *_parse_tree_entry(entry))
        _fill_submodule(
            ours=ours,
            root=root / inner.path,
            submodule=inner,
            folder=folder / inner.path,
            temp_folder=temp_folder,
            depth=depth + 1,
        )

    return True
