"""The ports of this machine that need no store: its clock, its branches, papers as files."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from phasegate.errors import StateConflict
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.workspace.checkout_base import move_branch
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.repository import Repository, read_refs


class SystemClock:
    """Fulfils `ports.Clock`."""

    def time_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def random_fraction(self) -> float:
        return random.random()  # noqa: S311 - jitter, no secret

    def new_id(self) -> str:
        return str(uuid4())


class LocalRefs:
    """Fulfils `ports.Refs` for the person's repository.

    A checkout of theirs that stands on a branch goes along.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def fetch(self, *branches: str) -> Mapping[str, str]:
        found = read_refs(self._repository, *(BRANCH_PREFIX + branch for branch in branches))
        return {
            branch: found[BRANCH_PREFIX + branch]
            for branch in branches
            if BRANCH_PREFIX + branch in found
        }

    def move(self, branch: str, old: str, new: str) -> bool:
        return move_branch(self._repository, branch, old, new)


class FileDocumentStore:
    """Fulfils `ports.Papers`.

    Files under their hashes, and beside them those that have a name for people.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes, name: str = "") -> str:
        digest = hashlib.sha256(data).hexdigest()
        for path in (self._path(digest), *((self._folder / name,) if name else ())):
            if not path.exists() or path.read_bytes() != data:
                make_folder(path.parent)
                replace_file(path, data)
        return digest

    def get(self, digest: str) -> bytes:
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StateConflict(
                f"the paper {path} cannot be read: {error.strerror}", "put it back, then run"
            ) from error

        if hashlib.sha256(data).hexdigest() != digest:
            raise StateConflict(f"the paper {path} was changed", "put it back as it was, then run")
        return data

    def _path(self, digest: str) -> Path:
        return self._folder / "papers" / digest
