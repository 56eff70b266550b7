"""Record the state of a checkout before commands run in it, and detect their changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from hashlib import sha1, sha256
from pathlib import Path
from typing import NamedTuple

from phasegate.files.file_times import are_file_times_reliable

_SHA1_DIGITS = 40


class FileStamp(NamedTuple):
    """The properties of a file that change when it is written to.

    A program can restore all of them except the change time (ctime).
    """

    mode: int
    size: int
    inode: int
    modified_ns: int
    changed_ns: int


TreeSnapshot = Mapping[str, FileStamp]


def take_snapshot(checkout: Path) -> TreeSnapshot:
    """Return a stamp for every file and link in the checkout, except those in `.git`.

    If the file system's times are not reliable, stamps have no times: every file then counts as
    touched, and its content is compared.
    """
    marks = {
        path: _make_stamp(entry.stat(follow_symlinks=False))
        for path, entry in _walk_files(str(checkout), "")
    }
    if are_file_times_reliable(checkout):
        return marks
    return {path: mark._replace(changed_ns=0) for path, mark in marks.items()}


def _walk_files(root: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the path and entry of every file below a folder, except in `.git`."""
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


def _make_stamp(found: os.stat_result) -> FileStamp:
    return FileStamp(
        mode=found.st_mode,
        size=found.st_size,
        inode=found.st_ino,
        modified_ns=found.st_mtime_ns,
        changed_ns=found.st_ctime_ns,
    )


def read_stamp(path: Path | str) -> FileStamp | None:
    try:
        return _make_stamp(os.lstat(path))
    except OSError:
        return None


def find_changed_files(checkout: Path, before: TreeSnapshot, blobs: Mapping[str, str]) -> list[str]:
    """Return the tracked files whose content changed since the snapshot `before`.

    `blobs` has the blob ids of the tracked files, by path. A file that was touched but still has
    the same content is unchanged.
    """
    # Joining Path objects would take longer than the system calls
    root = str(checkout)
    found = (
        (path, before.get(path), read_stamp(f"{root}/{path}"), blob) for path, blob in blobs.items()
    )
    touched = [one for one in found if one[1] != one[2]]

    return sorted(
        path
        for path, old, now, blob in touched
        if not _has_same_content(checkout / path, old, now, blob)
    )


def _has_same_content(
    path: Path, before: FileStamp | None, now: FileStamp | None, blob: str
) -> bool:
    """Return True if a touched file still has the content of its blob.

    Mode and size are compared first: the file may have become a pipe or very large.
    """
    if before is None or now is None or (now.mode, now.size) != (before.mode, before.size):
        return False

    try:
        if path.is_symlink():
            data = os.fsencode(path.readlink())
        else:
            data = path.read_bytes()
    except OSError:
        return False

    if len(blob) == _SHA1_DIGITS:
        digest = sha1(usedforsecurity=False)
    else:
        digest = sha256()

    digest.update(b"blob %d\0" % len(data))
    digest.update(data)

    return digest.hexdigest() == blob
