"""Processes of a job, found again after its warden was killed.

A process id proves nothing: the kernel gives it to somebody else. The tag that each process of a
job carries in its environment does, and a pidfd holds the process still while the tag is read.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from phasegate.sandbox.environment import JOB_TAG_VARIABLE

_KILL_TIMEOUT_S = 2.0


def kill_tagged_processes(tag: str) -> int:
    """Kill every process that carries this job's tag, until none is left.

    Returns how many there were.

    The warden has ended the job's processes before; this finds those of a warden that was itself
    killed.
    """
    if sys.platform != "linux":
        return 0

    # One that was killed shows its tag until it is gone
    ended = set()
    give_up_at_s = time.monotonic() + _KILL_TIMEOUT_S
    while (found := _find_tagged(tag)) and time.monotonic() < give_up_at_s:
        ended |= {pid for pid in found if _kill_if_tagged(pid, tag)}

    return len(ended)


def _find_tagged(tag: str) -> list[int]:
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and _has_tag(pid, tag)]


def _has_tag(pid: int, tag: str) -> bool:
    """Whether it shows the tag; once its first thread has ended, the others do."""
    found = _read_environ(f"/proc/{pid}") or b"\0".join(map(_read_environ, _list_threads(pid)))
    return f"{JOB_TAG_VARIABLE}={tag}".encode() in found.split(b"\0")


def _list_threads(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _read_environ(place: str) -> bytes:
    try:
        return Path(place, "environ").read_bytes()
    except OSError:
        # Ended, or not ours to look at
        return b""


def _kill_if_tagged(pid: int, tag: str) -> bool:
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False

    try:
        # Looked at again: now the number cannot change hands
        if not _has_tag(pid, tag):
            return False

        signal.pidfd_send_signal(pinned, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pinned)

    return True
