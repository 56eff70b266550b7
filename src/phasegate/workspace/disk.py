"""Files that an agent has made, handled without trusting any of them.

Every step goes from an open folder to a name in it, and never through a link. Only plain files with one name are read:
a second name may be one outside of the checkout (D13).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK_BYTES = 1024**2
HARD_LINK = "hard-link"
UNREADABLE = "unreadable"
OTHER_DEVICE = "other-device"


class Limits(NamedTuple):
    """How much a checkout may hold beyond what it began with (M04)."""

    files: int = 50_000
    file_bytes: int = 100 * 1024**2
    total_bytes: int = 1024**3
    depth: int = 100
    commits: int = 1000


class LimitReached(Exception):
    """An agent left more than we look at. Caught in this package: outside it is a value."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} (limit {limit})")
        self.what = what
        self.limit = limit


class Found(NamedTuple):
    """What lies at a path. Without an object id it is nothing that can be taken over."""

    mode: str
    object_id: str = ""
    size: int = 0
    link_target: str | None = None


@contextmanager
def opened_folder(path: str | Path, inside: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, which is not a link."""
    descriptor = os.open(path, _FOLDER, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def names_in(folder: int) -> list[str]:
    """The names in an open folder."""
    return os.listdir(folder)


@contextmanager
def folder_beneath(root: int, folder: str) -> Iterator[int]:
    """A descriptor of a folder some levels below `root`; OSError where any part of the way is something else."""
    descriptor = os.dup(root)
    try:
        for name in folder.split("/") if folder else ():
            if name in ("", ".", ".."):
                raise FileNotFoundError(folder)
            below = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def read_plain_file(folder: int, name: str, limit: int) -> bytes | None:
    """The bytes of a plain file with one name, or None for anything else, for more than `limit`, or if it changes."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or about.st_size > limit:
            return None
        content = _read_up_to(descriptor, about.st_size + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content if len(content) == about.st_size else None


def _read_up_to(descriptor: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0 and (part := os.read(descriptor, min(most, _CHUNK_BYTES))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def read_beneath(root: int, path: str, limit: int) -> bytes | None:
    """The bytes of a plain file some levels below `root`, or None."""
    folder, _, name = path.rpartition("/")
    try:
        with folder_beneath(root, folder) as descriptor:
            return read_plain_file(descriptor, name, limit)
    except OSError:
        return None


def content_beneath(root: int, path: str, found: Found, limit: int) -> bytes | None:
    """The bytes that git keeps of what was found: a file's content or a link's target; None if it has changed since."""
    if found.link_target is None:
        return read_beneath(root, path, limit)
    folder, _, name = path.rpartition("/")
    try:
        with folder_beneath(root, folder) as descriptor:
            return os.fsencode(os.readlink(name, dir_fd=descriptor))
    except OSError:
        return None


def look(folder: int, name: str, about: os.stat_result, hash_name: str, limits: Limits) -> Found:
    """What lies under a name: its mode as git writes it, and the id that git would give its content."""
    if stat.S_ISLNK(about.st_mode):
        target = os.readlink(name, dir_fd=folder)
        return Found("120000", blob_id(os.fsencode(target), hash_name), len(target), target)
    if not stat.S_ISREG(about.st_mode):
        return Found(f"{about.st_mode:06o}")
    if about.st_nlink != 1:
        return Found(HARD_LINK)
    if about.st_size > limits.file_bytes:
        raise LimitReached(f"a file of {about.st_size} bytes: {name!a}", limits.file_bytes)
    content = read_plain_file(folder, name, limits.file_bytes)
    if content is None:
        return Found(UNREADABLE)
    return Found(_git_mode(about.st_mode), blob_id(content, hash_name), len(content))


def _git_mode(mode: int) -> str:
    """Only the owner's right to execute counts for git; what makes a program run as somebody else is named in full."""
    if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX):
        return f"{mode:06o}"
    return "100755" if mode & stat.S_IXUSR else "100644"


def blob_id(content: bytes, hash_name: str) -> str:
    """The id of a blob, over the raw bytes."""
    found = hashlib.new(hash_name, b"blob %d\0" % len(content), usedforsecurity=False)
    found.update(content)
    return found.hexdigest()
