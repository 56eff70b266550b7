"""What is in a checkout before commands run in it, and what they did to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from hashlib import sha1, sha256
from pathlib import Path
from typing import NamedTuple

from phasegate.files.file_times import times_tell

_SHA1_DIGITS = 40


class Mark(NamedTuple):
    """What changes when a file is touched. A program can set the rest back, but not the time of the last change."""

    mode: int
    size: int
    inode: int
    modified_ns: int
    changed_ns: int


Snapshot = Mapping[str, Mark]


def take_snapshot(checkout: Path) -> Snapshot:
    """Every file and link in the checkout, but for git's own folder.

    Where times do not tell what was written, none is noted: then every file counts as touched, and contents decide.
    """
    marks = {path: _mark(entry.stat(follow_symlinks=False)) for path, entry in _files(str(checkout), "")}
    return marks if times_tell(checkout) else {path: mark._replace(changed_ns=0) for path, mark in marks.items()}


def _files(root: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    pending = [prefix]
    while pending:
        prefix = pending.pop()
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if path != ".git":
                        pending.append(f"{path}/")
                elif path != ".git":
                    yield path, entry


def _mark(found: os.stat_result) -> Mark:
    return Mark(found.st_mode, found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def mark_of(path: Path | str) -> Mark | None:
    try:
        return _mark(os.lstat(path))
    except OSError:
        return None


def changed_files(checkout: Path, before: Snapshot, blobs: Mapping[str, str]) -> list[str]:
    """The files of git's tree that are no longer what they were. `blobs` are git's ids of their contents, by path.

    A file that was touched, but still has the content that git knows, has not changed.
    """
    root = str(checkout)  # joining Paths would cost more than asking the system
    found = ((path, before.get(path), mark_of(f"{root}/{path}"), blob) for path, blob in blobs.items())
    touched = [one for one in found if one[1] != one[2]]
    return sorted(path for path, old, now, blob in touched if not _is_same(checkout / path, old, now, blob))


def _is_same(path: Path, before: Mark | None, now: Mark | None, blob: str) -> bool:
    """Mode and size are asked first: what has become a pipe or endless must not be read."""
    if before is None or now is None or (now.mode, now.size) != (before.mode, before.size):
        return False
    try:
        data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    except OSError:
        return False
    digest = sha1(usedforsecurity=False) if len(blob) == _SHA1_DIGITS else sha256()
    digest.update(b"blob %d\0" % len(data))
    digest.update(data)
    return digest.hexdigest() == blob
