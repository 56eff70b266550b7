"""Git's index, read as what it also is: the state of every file at the moment of the checkout.

The index that our own git wrote is kept where agents cannot write. A file whose size, times and inode are still the
same as in it has not been touched: the time of a change of an inode (ctime) cannot be set by a program.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.errors import StateConflict

_ENTRY = struct.Struct(">10I")
_NAMES = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_EXTENDED = 0x4000
LOW = 0xFFFFFFFF  # the index keeps 32 bits of size and inode
SECOND_NS = 10**9


class Entry(NamedTuple):
    """A tracked file: what git has of it, and how it lay on the disk."""

    ctime_ns: int
    mtime_ns: int
    inode: int
    size: int
    mode: int
    object_id: bytes

    @property
    def mode_text(self) -> str:
        return f"{self.mode:06o}"

    @property
    def id_text(self) -> str:
        return self.object_id.hex()


class Snapshot:
    """All tracked files, by folder and name. Folders are `""` and `"a/b"`."""

    def __init__(self, folders: dict[str, dict[str, Entry]]) -> None:
        self.folders = folders
        self.parents = _with_parents(folders)

    def get(self, path: str) -> Entry | None:
        folder, _, name = path.rpartition("/")
        return self.folders.get(folder, {}).get(name)

    def __iter__(self) -> Iterator[str]:
        for folder, names in self.folders.items():
            yield from (f"{folder}/{name}" if folder else name for name in names)


def _with_parents(folders: dict[str, dict[str, Entry]]) -> set[str]:
    """Every folder that holds a tracked file at some depth."""
    found = set(folders)
    for folder in folders:
        while (cut := folder.rfind("/")) > 0 and (folder := folder[:cut]) not in found:
            found.add(folder)
    return found | {""}


def read_snapshot(data: bytes, hash_name: str) -> Snapshot:
    """Read an index that our own git wrote. Its order keeps the files of a folder together, mostly."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3):
        raise StateConflict("the record of a checkout cannot be read", "Remove the checkout: its work is saved first.")
    id_bytes = 20 if hash_name == "sha1" else 32
    folders: dict[str, dict[str, Entry]] = {}
    for path, entry in _entries(data, count, id_bytes):
        folder, _, name = path.rpartition("/")
        try:
            folders[folder][name] = entry
        except KeyError:
            folders[folder] = {name: entry}
    return Snapshot(folders)


def _entries(data: bytes, count: int, id_bytes: int) -> Iterator[tuple[str, Entry]]:
    unpack, find = _ENTRY.unpack_from, data.index
    make = tuple.__new__  # a tenth of a second for 100 000 files
    at = 12
    for _ in range(count):
        ctime, ctime_ns, mtime, mtime_ns, _device, inode, mode, _user, _group, size = unpack(data, at)
        flags_at = at + 40 + id_bytes
        start = flags_at + (4 if data[flags_at] & (_EXTENDED >> 8) else 2)
        end = find(0, start)
        times = (ctime * SECOND_NS + ctime_ns, mtime * SECOND_NS + mtime_ns)
        entry = make(Entry, (*times, inode, size, mode, data[at + 40 : flags_at]))
        yield data[start:end].decode(*_NAMES), entry
        at += (end - at + 8) & ~7
