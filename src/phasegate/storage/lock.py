"""File locks that the kernel releases when their process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import msgspec

from phasegate.errors import (
    AlreadyRunning,
    EnvironmentUnavailable,
    Interrupted,
    StateConflict,
)
from phasegate.storage.lock_holder import (
    MAX_LOCK_FILE_BYTES,
    LockHolder,
    lock_path,
    parse_holder,
    read_process_start,
)

MAX_LOCK_WAIT_S = 60.0
_HOLDER_RECORD_BYTES = 1024
_INITIAL_BACKOFF_S = 0.0005
_MAX_BACKOFF_S = 0.02


@contextmanager
def feature_lock(folder: Path, feature: str, command: str, since: str) -> Iterator[None]:
    """Hold the lock of a feature for a `with` block.

    If another process has the lock, raise an error at once that names that process.
    """
    with _open_lock_file(lock_path(folder, feature)) as descriptor:
        if not _try_lock(descriptor):
            raise AlreadyRunning(
                f"feature {feature} is already running:"
                f" {_describe_holder(parse_holder(os.pread(descriptor, MAX_LOCK_FILE_BYTES, 0)))}",
                f"wait for it to end, or stop it: phasegate stop --feature {feature}",
            )

        _write_holder(
            descriptor, LockHolder(os.getpid(), read_process_start(os.getpid()), command, since)
        )
        try:
            yield
        finally:
            # The process may live on, so it must no longer be named as the holder
            os.ftruncate(descriptor, 0)


@contextmanager
def named_lock(
    folder: Path, name: str, timeout_s: float = MAX_LOCK_WAIT_S, stop: Event | None = None
) -> Iterator[None]:
    """Hold a lock that all processes of a repository share by name.

    Wait for it up to `timeout_s`; raise Interrupted if `stop` is set.
    """
    with _open_lock_file(folder / f"{name}.lock", allow_read_only=True) as descriptor:
        if not _wait_for_lock(descriptor, timeout_s, stop or Event()):
            raise StateConflict(
                f"the {name} lock is still held after {timeout_s:g} s",
                "check whether another phasegate process is suspended",
            )

        yield


def is_held_elsewhere(descriptor: int, timeout_s: float = 0.0) -> bool:
    """Return True if another process holds the lock on an open file; otherwise acquire it."""
    return not _wait_for_lock(descriptor, timeout_s, Event())


@contextmanager
def _open_lock_file(path: Path, *, allow_read_only: bool = False) -> Iterator[int]:
    """Open a lock file; closing the descriptor releases the lock.

    The file is not removed afterwards, because then two processes could hold the lock. With
    `allow_read_only`, the lock works on a read-only file system too.
    """
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

    try:
        try:
            descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            if not allow_read_only or error.errno not in (errno.EROFS, errno.EACCES):
                raise

            descriptor = os.open(path, flags | os.O_RDONLY)
    except FileNotFoundError as error:
        raise StateConflict(
            f"the folder {path.parent} was removed while it was in use",
            "restore .phasegate, then run again",
        ) from error
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the lock {path} cannot be opened: {error.strerror}", "check its permissions"
        ) from error

    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Try to lock a file; return False if another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise EnvironmentUnavailable(
            f"this file system does not support locks: {error.strerror}",
            "keep the repository on a local disk",
        ) from error

    return True


def _wait_for_lock(descriptor: int, timeout_s: float, stop: Event) -> bool:
    """Wait for a lock with back-off; return False after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause_s = _INITIAL_BACKOFF_S

    while not _try_lock(descriptor):
        if time.monotonic() > deadline:
            return False
        if stop.wait(pause_s):
            raise Interrupted

        pause_s = min(pause_s * 2, _MAX_BACKOFF_S)

    return True


def _write_holder(descriptor: int, holder: LockHolder) -> None:
    """Write the holder to the lock file, replacing the text of an earlier holder.

    One system call is used, so that readers see either the old or the new text.
    """
    os.pwrite(descriptor, msgspec.json.encode(holder._asdict()).ljust(_HOLDER_RECORD_BYTES), 0)


def _describe_holder(holder: LockHolder | None) -> str:
    if holder is None:
        return "another process holds its lock"
    return f"process {holder.pid} ({holder.command}) since {holder.since}"
