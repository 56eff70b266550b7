"""Find and kill the processes of a job whose supervisor was killed.

A pid does not identify a process, since the kernel reuses it. The tag in the environment of each
process of a job does, and a pidfd pins the process while the tag is read.
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
    """Kill every process with this job's tag until none is left; return how many there were.

    Usually the supervisor has ended the job's processes; this handles a supervisor that was killed.
    """
    if sys.platform != "linux":
        return 0

    # A set, because a killed process shows its tag until it is gone and may be found twice.
    killed = set()
    give_up_at_s = time.monotonic() + _KILL_TIMEOUT_S
    while (pids := _find_tagged(tag)) and time.monotonic() < give_up_at_s:
        killed |= {pid for pid in pids if _kill_if_tagged(pid, tag)}

    return len(killed)


def _find_tagged(tag: str) -> list[int]:
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and _has_tag(pid, tag)]


def _has_tag(pid: int, tag: str) -> bool:
    """Return True if the process has the tag.

    Once the main thread has ended, only the other threads show the environment.
    """
    environ = _read_environ(f"/proc/{pid}") or b"\0".join(map(_read_environ, _list_threads(pid)))
    return f"{JOB_TAG_VARIABLE}={tag}".encode() in environ.split(b"\0")


def _list_threads(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _read_environ(proc_folder: str) -> bytes:
    try:
        return Path(proc_folder, "environ").read_bytes()
    except OSError:
        # The process has ended, or belongs to another user.
        return b""


def _kill_if_tagged(pid: int, tag: str) -> bool:
    """Kill a process if it belongs to the job; return whether it was killed."""
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False

    try:
        # Check again: now that the process is pinned, its pid cannot be reused.
        if not _has_tag(pid, tag):
            return False

        signal.pidfd_send_signal(pinned, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pinned)

    return True
