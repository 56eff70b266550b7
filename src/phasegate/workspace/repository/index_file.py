"""Parse git's index, which records the state of every file at the time of the checkout.

The index that Phasegate's own git wrote is kept where agents cannot write. A file whose size, times
and inode are unchanged was not written to, because a program cannot set the inode change time
(ctime).
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.errors import StateConflict

_NAME_CODEC = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_EXTENDED_FLAG = 0x4000
_NAME_LENGTH_MASK = 0xFFF
_HEADER_BYTES = 12
_STAT_BYTES = 40
_ID_BYTES = {"sha1": 20, "sha256": 32}
# The index stores only 32 bits of size and inode
LOW_32_BITS = 0xFFFFFFFF
NS_PER_SECOND = 10**9

# ctime_ns, mtime_ns, inode, size, mode, object id
FileStat = tuple[int, int, int, int, int, bytes]
FilesByFolder = dict[str, dict[str, FileStat]]


class IndexEntry(NamedTuple):
    """Mode and blob id of a tracked file."""

    mode: str
    object_id: str


class IndexSnapshot:
    """All tracked files, by folder and name. The root folder is `""`, others look like `"a/b"`."""

    def __init__(self, folders: FilesByFolder) -> None:
        self.folders = folders
        self.parents = _collect_parents(folders)

    def get(self, path: str) -> IndexEntry | None:
        folder, _, name = path.rpartition("/")
        state = self.folders.get(folder, {}).get(name)
        if state is None:
            return None
        return to_index_entry(state)

    def __iter__(self) -> Iterator[str]:
        for folder, names in self.folders.items():
            yield from (f"{folder}/{name}" if folder else name for name in names)


def to_index_entry(state: FileStat) -> IndexEntry:
    return IndexEntry(f"{state[4]:06o}", state[5].hex())


def _collect_parents(folders: FilesByFolder) -> set[str]:
    """Return every folder that contains a tracked file, directly or in a subfolder."""
    found = set(folders)
    for folder in folders:
        while (cut := folder.rfind("/")) > 0 and (folder := folder[:cut]) not in found:
            found.add(folder)
    return found | {""}


def parse_index(data: bytes, hash_name: str) -> IndexSnapshot:
    """Parse an index that Phasegate's own git wrote.

    The caller must check it with `has_valid_checksum` first.
    """
    signature, version, count = struct.unpack_from(">4sII", data)

    if signature != b"DIRC" or version not in (2, 3):
        raise StateConflict(
            "the record of a checkout cannot be read",
            "remove the checkout: its work is saved first",
        )

    return IndexSnapshot(_parse_entries(data, count, _ID_BYTES[hash_name]))


def has_valid_checksum(data: bytes, hash_name: str) -> bool:
    """Return True if an index is intact, that is, it ends with its own checksum."""
    end = len(data) - _ID_BYTES[hash_name]
    return end >= _HEADER_BYTES and hashlib.new(hash_name, data[:end]).digest() == data[end:]


def _parse_entries(data: bytes, count: int, id_bytes: int) -> FilesByFolder:
    """Parse the entries of an index.

    The loop avoids function calls, so that it takes 2 microseconds per file.
    """
    unpack = struct.Struct(f">4I4x2I8xI{id_bytes}sH").unpack_from
    found: FilesByFolder = {}
    current: dict[str, FileStat] = {}
    last: bytes | None = None
    at = _HEADER_BYTES

    for _ in range(count):
        ctime, ctime_ns, mtime, mtime_ns, inode, mode, size, object_id, flags = unpack(data, at)
        start = at + _STAT_BYTES + id_bytes + (4 if flags & _EXTENDED_FLAG else 2)
        length = flags & _NAME_LENGTH_MASK
        if length < _NAME_LENGTH_MASK:
            end = start + length
        else:
            end = data.index(0, start)

        cut = data.rfind(b"/", start, end)
        folder = b"" if cut < 0 else data[start:cut]
        if folder != last:
            last = folder
            current = found.setdefault(folder.decode(*_NAME_CODEC), {})

        times = (ctime * NS_PER_SECOND + ctime_ns, mtime * NS_PER_SECOND + mtime_ns)
        name = data[(start if cut < 0 else cut + 1) : end].decode(*_NAME_CODEC)
        current[name] = (*times, inode, size, mode, object_id)
        at += (end - at + 8) & ~7

    return found
