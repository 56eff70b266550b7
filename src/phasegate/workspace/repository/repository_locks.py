"""Locks that are released when a process dies, and cleanup of git's stale lock files.

Both locks are `flock`s, which the kernel releases when their holder dies. The repository lock is
also passed as stdout to each git process that changes something under it, so the lock is held until
that process has ended, even if Phasegate is killed. A process that gets the lock therefore knows
that every earlier holder, and each git process that it started, is dead.

A holder records the lock files that its git processes are about to create. The next holder finds
this list only if its writer died.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from phasegate.git import remove_stale_lock
from phasegate.workspace.repository.repository import Repository

_MAX_LIST_BYTES = 1024**2


class RepositoryLock:
    """A held repository lock.

    No other Phasegate process changes refs, or a user's checkout, while it is held.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def announce_lock_files(self, lock_files: Iterable[Path]) -> None:
        """Record the lock files that git is about to create: a power failure may leave them."""
        os.lseek(self.descriptor, 0, os.SEEK_END)
        os.write(self.descriptor, b"".join(os.fsencode(path) + b"\0" for path in lock_files))
        os.fsync(self.descriptor)


@contextmanager
def repository_lock(repository: Repository) -> Iterator[RepositoryLock]:
    """Acquire the repository lock; remove lock files that a dead process left behind."""
    repository.own_folder.mkdir(exist_ok=True)
    with _flock(repository.own_folder / "lock") as descriptor:
        left = os.pread(descriptor, _MAX_LIST_BYTES, 0)
        for name in left.split(b"\0"):
            if name:
                remove_stale_lock(Path(os.fsdecode(name)))

        os.ftruncate(descriptor, 0)
        try:
            yield RepositoryLock(descriptor)
        finally:
            os.ftruncate(descriptor, 0)


@contextmanager
def checkout_lock(repository: Repository, name: str) -> Iterator[None]:
    """Wait for the lock of one checkout, so that only one process creates, reads or removes it."""
    folder = repository.own_folder / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with _flock(folder / name):
        yield


@contextmanager
def _flock(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
