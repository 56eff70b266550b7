"""Processes found again after the fact, and proved to be the ones that are meant before anything is done to them (E09).

A number alone proves nothing: the kernel gives it to somebody else. A number and a start time do, and so does the tag
that each process of a job carries in its environment.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

from phasegate.cage.environment import JOB_TAG

_GIVE_UP_S = 2.0


class Identity(NamedTuple):
    """One process of one boot, never mistaken for a later one with the same number."""

    pid: int
    started_ticks: int
    boot: str

    def is_alive(self) -> bool:
        """Whether this very process still runs. Where it cannot be known, the answer is the cautious one: yes."""
        return identify(self.pid) == self if self.boot else _exists(self.pid)


def identify(pid: int) -> Identity | None:
    """Who has this number now: None when nobody has, or only a process that has ended and was not noticed yet."""
    if sys.platform != "linux":
        return Identity(pid, 0, "") if _exists(pid) else None
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        boot = _read("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        return None
    return None if fields[0] == b"Z" else Identity(pid, int(fields[19]), boot)


def end(identity: Identity) -> bool:
    """Kill this very process; False when it is not there any more, or when that cannot be proved."""
    if sys.platform != "linux" or not identity.boot:
        return False
    try:
        pinned = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        return identify(identity.pid) == identity and _kill(pinned)
    finally:
        os.close(pinned)


def end_tagged(tag: str) -> int:
    """Kill every process that carries this job's tag, until none is left; returns how many there were.

    The warden has ended the job's processes before; this finds those of a warden that was itself killed.
    """
    if sys.platform != "linux":
        return 0
    ended = 0
    give_up_at_s = time.monotonic() + _GIVE_UP_S
    while (found := _tagged(tag)) and time.monotonic() < give_up_at_s:
        ended += sum(_end_if_tagged(pid, tag) for pid in found)
    return ended


def _tagged(tag: str) -> list[int]:
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and _carries(pid, tag)]


def _carries(pid: int, tag: str) -> bool:
    try:
        return f"{JOB_TAG}={tag}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return False  # ended, or not ours to look at


def _end_if_tagged(pid: int, tag: str) -> bool:
    if sys.platform != "linux":
        return False
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        return _carries(pid, tag) and _kill(pinned)  # looked at again: now the number cannot change hands
    finally:
        os.close(pinned)


def _kill(pinned: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        signal.pidfd_send_signal(pinned, signal.SIGKILL)
    except OSError:
        return False
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
