"""Read an agent's own git directory as untrusted files.

Phasegate never uses it as a git directory: refs are read as text, and each object is checked
against its name and copied into a separate store. Anything irregular is skipped, and the history
then counts as unreadable.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from phasegate.files import read_regular_file
from phasegate.files.safe_open import folder_beneath
from phasegate.git import GitFailed, GitPaths, git
from phasegate.workspace.repository.disk_files import (
    CheckoutLimits,
    LimitReached,
    blob_id,
    list_names,
    read_beneath,
)
from phasegate.workspace.repository.repository import Repository

_REF_NAME = re.compile(r"refs/[A-Za-z0-9][A-Za-z0-9._/-]{0,200}")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FANOUT_FOLDER = re.compile(r"[0-9a-f]{2}")
_PACK_NAME = re.compile(r"pack-[0-9a-f]{40,64}\.pack")
_MIB = 1024**2
_MAX_INDEX_BYTES = 256 * 1024**2
_MAX_PACK_BYTES = 256 * 1024**2
_MAX_PACKS = 50
# For all packs together, because a few bytes can expand to any size
_PACKS_TIMEOUT_S = 20.0
_SENSITIVE_GIT_FILES = (
    ".git",
    *(
        f".git/{name}"
        for name in (
            "config",
            "config.worktree",
            "commondir",
            "gitdir",
            "hooks",
            "modules",
            "worktrees",
        )
    ),
    *(f".git/info/{name}" for name in ("attributes", "exclude", "grafts", "sparse-checkout")),
    *(
        f".git/objects/info/{name}"
        for name in ("alternates", "http-alternates", "commit-graph", "commit-graphs")
    ),
    *(f".git/{name}" for name in ("objects", "refs", "refs/replace", "shallow", "reftable")),
)


def read_agent_head(root: int) -> str | None:
    """Return the commit that HEAD of an agent's git names, or None if it cannot be read."""
    head = _read_text(root, ".git/HEAD")

    if head.startswith("ref: "):
        ref = head[5:]
        if not _REF_NAME.fullmatch(ref) or ".." in ref:
            return None

        head = _read_text(root, f".git/{ref}") or _find_packed_ref(root, ref)

    if _OBJECT_ID.fullmatch(head):
        return head

    return None


def _find_packed_ref(root: int, ref: str) -> str:
    for line in _read_text(root, ".git/packed-refs").splitlines():
        object_id, _, name = line.partition(" ")
        if name == ref:
            return object_id
    return ""


def _read_text(root: int, path: str) -> str:
    content = read_beneath(root, path, 64 * _MIB)
    if content is None:
        return ""
    return content.decode(errors="replace").strip()


def read_agent_index(root: int) -> bytes | None:
    """Return the bytes of the agent's index, or None if it cannot be read."""
    return read_beneath(root, ".git/index", _MAX_INDEX_BYTES)


def copy_agent_objects(
    root: int, repository: Repository, store: Path, limits: CheckoutLimits
) -> GitPaths:
    """Copy an agent's objects into a new store that also reads the user's objects."""
    (store / "info").mkdir(parents=True)
    (store / "pack").mkdir()
    (store / "info/alternates").write_bytes(b"%s\n" % os.fsencode(repository.objects))
    place = repository.place()._replace(objects=store)
    room = limits.total_bytes

    for name, data in _read_loose_objects(root, repository.hash_name, limits):
        room -= len(data)
        if room < 0:
            raise LimitReached("objects in the agent's git directory, in bytes", limits.total_bytes)

        (store / name[:2]).mkdir(exist_ok=True)
        (store / name[:2] / name[2:]).write_bytes(data)

    end_at_s = time.monotonic() + _PACKS_TIMEOUT_S
    for number, pack in enumerate(_read_packs(root)):
        left_s = end_at_s - time.monotonic()
        if left_s <= 0 or number == _MAX_PACKS:
            raise LimitReached(
                "packs in the agent's git directory, or seconds to read them", number
            )

        _add_pack(place, pack, left_s, limits.file_bytes + _MIB)

    return place


def _read_loose_objects(
    root: int, hash_name: str, limits: CheckoutLimits
) -> Iterator[tuple[str, bytes]]:
    """Yield every loose object whose content matches its name, still compressed."""
    count = 0
    room = limits.total_bytes

    for fan in _list_names_beneath(root, ".git/objects"):
        for rest in (
            _list_names_beneath(root, f".git/objects/{fan}")
            if _FANOUT_FOLDER.fullmatch(fan)
            else ()
        ):
            count += 1
            if count > 10 * limits.files:
                raise LimitReached("objects in the agent's git directory", 10 * limits.files)

            data = read_beneath(root, f".git/objects/{fan}/{rest}", limits.file_bytes)
            found, size = _hash_unpacked(data or b"", hash_name, limits.file_bytes)
            room -= size
            if room < 0:
                raise LimitReached(
                    "objects in the agent's git directory, unpacked, in bytes", limits.total_bytes
                )

            if data is not None and found == fan + rest:
                yield found, data


def _hash_unpacked(data: bytes, hash_name: str, limit: int) -> tuple[str, int]:
    """Decompress an object and return its id and size.

    The id is empty if the data is damaged or exceeds the limit.
    """
    unpacker = zlib.decompressobj()
    found = hashlib.new(hash_name, usedforsecurity=False)
    left = limit

    try:
        while data and left > 0 and not unpacker.eof:
            part = unpacker.decompress(data, min(left, _MIB))
            data = unpacker.unconsumed_tail
            found.update(part)
            left -= len(part)
    except zlib.error:
        return "", limit - left

    return found.hexdigest() if unpacker.eof else "", limit - left


def _read_packs(root: int) -> Iterator[bytes]:
    """Yield the packs of the agent's git directory that are regular files."""
    try:
        with folder_beneath(root, ".git/objects/pack") as folder:
            for name in sorted(list_names(folder)):
                if (
                    _PACK_NAME.fullmatch(name)
                    and (data := read_regular_file(name, _MAX_PACK_BYTES, folder, single_link=True))
                    is not None
                ):
                    yield data
    except OSError:
        return


def _add_pack(place: GitPaths, pack: bytes, timeout_s: float, max_object_bytes: int) -> None:
    """Add a pack to a store with git, which computes the object names.

    A broken pack is skipped. So is a pack with an oversized object, because a few bytes of deltas
    can expand until memory is exhausted.
    """
    try:
        git(
            place,
            "index-pack",
            "--stdin",
            stdin=pack,
            timeout_s=timeout_s,
            max_allocation_bytes=max_object_bytes,
        )
    except GitFailed:
        return


def _list_names_beneath(root: int, folder: str) -> list[str]:
    try:
        with folder_beneath(root, folder) as descriptor:
            return sorted(list_names(descriptor))
    except OSError:
        return []


def fingerprint_git_files(root: int, hash_name: str) -> dict[str, str]:
    """Return the content ids of files in a git directory that can make git run a program or trust
    data.
    """
    found = {}

    for path in (*_SENSITIVE_GIT_FILES, *_list_hooks(root)):
        kind = _read_file_type(root, path)
        if kind == "100":
            found[path] = blob_id(read_beneath(root, path, _MIB) or b"", hash_name)
        elif kind is not None:
            found[path] = kind

    return found


def _list_hooks(root: int) -> list[str]:
    """Return the paths of at most 100 files in the hooks folder."""
    return [f".git/hooks/{name}" for name in _list_names_beneath(root, ".git/hooks")[:100]]


def _read_file_type(root: int, path: str) -> str | None:
    """Return the type digits of a file's mode, or None if the file does not exist.

    For example `"100644"[:3]` is "100", a regular file; "120" is a symbolic link, "040" a folder.
    """
    folder, _, name = path.rpartition("/")
    try:
        with folder_beneath(root, folder) as descriptor:
            return f"{os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode:06o}"[:3]
    except OSError:
        return None
