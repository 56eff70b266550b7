"""Implement the ports of this machine that need no store: clock, branches, documents as files."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import make_folder, replace_file_at
from phasegate.files.safe_open import closing_descriptor, folder_descriptor, make_folder_beneath
from phasegate.workspace.checkout.checkout_base import move_branch
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import Repository, read_refs


class SystemClock:
    """Implements `ports.Clock`."""

    def time_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def random_fraction(self) -> float:
        return random.random()  # noqa: S311 - jitter, no secret

    def new_id(self) -> str:
        return str(uuid4())


class LocalRefs:
    """Implements `ports.Refs` for the user's repository.

    A checkout of the user that has a moved branch checked out is updated too.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def fetch(self, *branches: str) -> Mapping[str, str]:
        refs = read_refs(self._repository, *(BRANCH_PREFIX + branch for branch in branches))
        return {
            branch: refs[BRANCH_PREFIX + branch]
            for branch in branches
            if BRANCH_PREFIX + branch in refs
        }

    def move(self, branch: str, old: str, new: str) -> bool:
        return move_branch(self._repository, branch, old, new)


class FileDocumentStore:
    """Implements `ports.DocumentStore`: files named by hash, and copies with readable names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes, name: str = "") -> str:
        digest = hashlib.sha256(data).hexdigest()
        paths = [self._path(digest)]
        if name:
            paths.append(self._folder / name)

        for path in paths:
            if not path.exists() or path.read_bytes() != data:
                self._write(path, data)
        return digest

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file without following links below the folder: a clone may bring some."""
        parts = path.relative_to(self._folder).parts
        make_folder(self._folder)
        try:
            with (
                folder_descriptor(self._folder) as top,
                closing_descriptor(make_folder_beneath(top, parts[:-1])) as folder,
            ):
                replace_file_at(folder, parts[-1], data, 0o600)
        except OSError as error:
            raise EnvironmentUnavailable(
                f"{path} cannot be written: {error.strerror}",
                "check its folder: it must not be a link, and the disk must have space",
            ) from error

    def get(self, digest: str) -> bytes:
        """Return a document; raise StateConflict if it is missing or was changed."""
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StateConflict(
                f"the document {path} cannot be read: {error.strerror}",
                "restore it, then run again",
            ) from error

        if hashlib.sha256(data).hexdigest() != digest:
            raise StateConflict(f"the document {path} was changed", "restore it, then run again")
        return data

    def _path(self, digest: str) -> Path:
        return self._folder / "papers" / digest
