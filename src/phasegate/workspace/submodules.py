"""Submodules of a tree, written from what the person has of them: nothing is fetched.

Only files are written, without a git directory. What an agent changes in them cannot be taken over, and is named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.git import GitFailed, Place, git
from phasegate.workspace.checkout_files import CheckoutLimits, look
from phasegate.workspace.ignore import IgnoreRules
from phasegate.workspace.repository import Repository, git_dir_in, read_blobs, temporary_folder
from phasegate.workspace.tree_diff import tree_entries

_LFS = b"filter=lfs"
_DEEPEST = 8
_DEEPEST_FOLDER = 64
_MOST_NAMED = 100
_SHA1_DIGITS = 40


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


def altered_in_submodules(
    repository: Repository, tree: str, filled: Iterable[str], root: int, stamp_ns: int, litter: tuple[str, ...]
) -> tuple[str, ...]:
    """What is not as we wrote it in submodules that we filled: changed, gone, or new and not ignored. The first ones.

    `root` is the checkout, open; a file that was not touched since `stamp_ns` is as it was.
    """
    known = frozenset(filled)
    found: list[str] = []
    for one in submodules_of(repository, tree) if known else ():
        if one.path in known and one.git_dir is not None and len(found) < _MOST_NAMED:
            files = dict(_files_of(repository, repository.root / one.path, one, 0))
            try:
                found += _altered(files, _ignores(one.git_dir, files, litter), root, one.path, stamp_ns)
            except FileNotFoundError:
                found.append(one.path)  # it is gone
    return tuple(found[:_MOST_NAMED])


def _files_of(repository: Repository, root: Path, one: Submodule, depth: int) -> Iterator[tuple[str, str]]:
    """The files of a submodule and of those inside of it, from the checkout's root, each with its id."""
    if one.git_dir is None or depth > _DEEPEST:
        return
    place = Place(one.git_dir, one.git_dir / "objects")
    for entry in filter(None, git(place, "ls-tree", "-r", "-z", one.commit).stdout.split(b"\0")):
        path, object_id = _read(entry)
        if entry.startswith(b"160000 "):
            inner = _found(root, one.git_dir, path, object_id)
            below = inner._replace(path=f"{one.path}/{path}")
            yield from _files_of(repository, root / path, below, depth + 1)
        else:
            yield f"{one.path}/{path}", object_id


def _ignores(git_dir: Path, files: dict[str, str], litter: tuple[str, ...]) -> IgnoreRules:
    own = {path.rpartition("/")[0]: blob for path, blob in files.items() if path.rpartition("/")[2] == ".gitignore"}
    try:
        texts = read_blobs(Place(git_dir, git_dir / "objects"), own.values())
    except GitFailed:  # that of a submodule inside, which is kept elsewhere
        texts = {}
    return IgnoreRules({folder: texts.get(blob, b"") for folder, blob in own.items()}, litter)


def _altered(files: dict[str, str], rules: IgnoreRules, root: int, top: str, stamp_ns: int) -> Iterator[str]:
    gone, parents = set(files), {parent for path in files for parent in _parents(path)}
    for folder, folders, names, descriptor in os.fwalk(top, dir_fd=root, follow_symlinks=False):
        for name in (*names, *folders):
            path = f"{folder}/{name}"
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode):
                continue
            gone.discard(path)
            is_touched = about.st_ctime_ns >= stamp_ns and (path in files or not rules.covers(path, is_folder=False))
            if is_touched and not _is_as_it_was(files.get(path), descriptor, name, about):
                yield path
        is_deep = folder.count("/") - top.count("/") > _DEEPEST_FOLDER
        paths = {name: f"{folder}/{name}" for name in folders}
        folders[:] = [
            name
            for name, path in paths.items()
            if path in parents or not (is_deep or rules.covers(path, is_folder=True))
        ]
    yield from sorted(gone)


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _is_as_it_was(object_id: str | None, folder: int, name: str, about: os.stat_result) -> bool:
    if object_id is None or not (stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)):
        return False
    hash_name = "sha1" if len(object_id) == _SHA1_DIGITS else "sha256"
    return look(folder, name, about, hash_name, CheckoutLimits()).object_id == object_id


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
