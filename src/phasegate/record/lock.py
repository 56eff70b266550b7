"""Locks with proof of life: the kernel holds them for a process and lets them go when it dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import msgspec

from phasegate.errors import EnvironmentUnavailable, Interrupted, StateConflict
from phasegate.rules.artifact_path import require_slug

LONGEST_WAIT_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock: enough to find the process, and to tell it from a later one with the same number (E09)."""

    pid: int
    process_start: str
    command: str
    since: str


@contextmanager
def feature_lock(folder: Path, feature: str, command: str, since: str) -> Iterator[None]:
    """Hold a feature alone; refuse at once, naming the holder, when another process has it (G02)."""
    with _open(folder / f"feature-{require_slug(feature)}.lock") as descriptor:
        if not _try(descriptor):
            raise StateConflict(
                f"feature {feature} is in work: {_describe(_read(descriptor))}",
                "wait for it to end, or stop it; a lock never outlives its process",
            )
        _sign(descriptor, Holder(os.getpid(), process_start(os.getpid()), command, since))
        yield


def feature_holder(folder: Path, feature: str) -> Holder | None:
    """Who works on a feature at this moment; None if nobody does."""
    path = folder / f"feature-{require_slug(feature)}.lock"
    if not path.exists():
        return None
    with _open(path) as descriptor:
        return None if _try(descriptor) else _read(descriptor) or Holder(0, "", "", "")


@contextmanager
def repository_lock(
    folder: Path, name: str, timeout_s: float = LONGEST_WAIT_S, stop: Event | None = None
) -> Iterator[None]:
    """Hold a lock that all processes of a repository share, waiting for it up to a limit, or until told to stop."""
    with _open(folder / f"{name}.lock") as descriptor:
        if not _wait(descriptor, timeout_s, stop or Event()):
            raise StateConflict(f"the {name} lock is still held after {timeout_s:g} s", "is another phasegate stopped?")
        yield


def is_held(descriptor: int, timeout_s: float = 0.0) -> bool:
    """Whether somebody else holds the lock on an open file. If not, it is held through this descriptor from now on."""
    return not _wait(descriptor, timeout_s, Event())


def process_start(pid: int) -> str:
    """When a process started, as the kernel counts; empty where it does not say."""
    try:
        with Path(f"/proc/{pid}/stat").open("rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """Closing the descriptor lets the lock go. The file stays: removing it would let two processes hold it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the lock {path} cannot be opened: {error.strerror}", "check its permissions"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise EnvironmentUnavailable(
            f"this file system has no locks: {error.strerror}", "keep the repository on a local disk"
        ) from error
    return True


def _wait(descriptor: int, timeout_s: float, stop: Event) -> bool:
    deadline, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while not _try(descriptor):
        if time.monotonic() > deadline:
            return False
        if stop.wait(pause_s):
            raise Interrupted
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
    return True


def _sign(descriptor: int, holder: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(holder), 0)


def _read(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.MsgspecError:
        return None


def _describe(holder: Holder | None) -> str:
    if holder is None:
        return "another process holds its lock"
    return f"process {holder.pid} ({holder.command}) since {holder.since}"
