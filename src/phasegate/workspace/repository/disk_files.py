"""Inspect files in a checkout as git would: modes, blob ids, contents, within limits."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.errors import StateConflict
from phasegate.files import open_regular_file, read_regular_file
from phasegate.files.safe_open import closing_descriptor, folder_beneath

_CHUNK_BYTES = 1024**2
HARD_LINK = "hard-link"
UNREADABLE = "unreadable"
OTHER_DEVICE = "other-device"


class CheckoutLimits(NamedTuple):
    """Limits for the amount of content that an agent may add to a checkout."""

    files: int = 50_000
    file_bytes: int = 100 * 1024**2
    total_bytes: int = 1024**3
    depth: int = 100
    commits: int = 1000


class LimitReached(Exception):
    """A limit was exceeded.

    The exception is caught inside this package and returned as a value.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} (limit {limit})")
        self.what = what
        self.limit = limit


class DiskEntry(NamedTuple):
    """A file, link or folder found at a path. Without an object id it cannot be harvested."""

    mode: str
    object_id: str = ""
    size: int = 0
    link_target: str | None = None


def list_names(folder: int) -> list[str]:
    """Return the names in an open folder."""
    return os.listdir(folder)


def _read_chunks(descriptor: int, max_bytes: int) -> Iterator[bytes]:
    while max_bytes > 0 and (part := os.read(descriptor, min(max_bytes, _CHUNK_BYTES))):
        yield part
        max_bytes -= len(part)


def _hash_plain_file(folder: int, name: str, size: int, hash_name: str) -> str | None:
    """Return the git id of a file of known size, or None if the file changed or was removed.

    The file is read in chunks.
    """
    found = _blob_hash(size, hash_name)
    left = size

    try:
        with closing_descriptor(open_regular_file(name, folder, single_link=True)) as descriptor:
            for part in _read_chunks(descriptor, size + 1):
                found.update(part)
                left -= len(part)
    except OSError:
        return None

    if left == 0:
        return found.hexdigest()

    return None


def read_beneath(root: int, path: str, limit: int) -> bytes | None:
    """Return the bytes of a regular file below `root`, or None if it cannot be read."""
    folder, _, name = path.rpartition("/")

    try:
        with folder_beneath(root, folder) as descriptor:
            return read_regular_file(name, limit, descriptor, single_link=True)
    except OSError:
        return None


def read_unchanged_content(root: int, path: str, found: DiskEntry, hash_name: str) -> bytes:
    """Return the content that git would store for an entry; raise an error if it has changed."""
    is_file = found.link_target is None
    if is_file:
        content = read_beneath(root, path, found.size)
    else:
        content = _read_link_target(root, path)

    if content is None or blob_id(content, hash_name) != found.object_id:
        raise StateConflict(
            f"{path!a} changed after it was inspected",
            "a process is still writing to it: dispatch again",
        )

    return content


def _read_link_target(root: int, path: str) -> bytes | None:
    folder, _, name = path.rpartition("/")
    try:
        with folder_beneath(root, folder) as descriptor:
            return os.fsencode(os.readlink(name, dir_fd=descriptor))
    except OSError:
        return None


def inspect_path(
    folder: int, name: str, about: os.stat_result, hash_name: str, limits: CheckoutLimits
) -> DiskEntry:
    """Return the git mode of a path, and the id that git would give its content."""
    if stat.S_ISLNK(about.st_mode):
        target = os.readlink(name, dir_fd=folder)
        return DiskEntry("120000", blob_id(os.fsencode(target), hash_name), len(target), target)
    if not stat.S_ISREG(about.st_mode):
        return DiskEntry(f"{about.st_mode:06o}")
    if about.st_nlink != 1:
        return DiskEntry(HARD_LINK)
    if about.st_size > limits.file_bytes:
        raise LimitReached(f"a file of {about.st_size} bytes: {name!a}", limits.file_bytes)

    object_id = _hash_plain_file(folder, name, about.st_size, hash_name)
    if object_id is None:
        return DiskEntry(UNREADABLE)

    return DiskEntry(_git_mode(about.st_mode), object_id, about.st_size)


def _git_mode(mode: int) -> str:
    """Return the git mode of a file.

    Only the owner's execute bit counts. Modes with setuid or setgid are returned in full.
    """
    if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX):
        return f"{mode:06o}"
    if mode & stat.S_IXUSR:
        return "100755"
    return "100644"


def blob_id(content: bytes, hash_name: str) -> str:
    """Return the git blob id of raw bytes."""
    found = _blob_hash(len(content), hash_name)
    found.update(content)
    return found.hexdigest()


def _blob_hash(size: int, hash_name: str) -> hashlib._Hash:
    return hashlib.new(hash_name, b"blob %d\0" % size, usedforsecurity=False)
