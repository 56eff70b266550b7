"""Waiting for a child of ours without looking again and again."""

from __future__ import annotations

import os
import select
import subprocess
import sys


def pin(pid: int) -> int | None:
    """A descriptor of this process that becomes readable when it ends, or None where there is no such thing."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # a kernel before 5.3


def ends_within(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether it ended in time. `Popen.wait` sleeps between its looks, which costs a short job up to 50 ms."""
    if process.poll() is not None:
        return True
    pinned = pin(process.pid)
    if pinned is not None:
        try:
            poll = select.poll()
            poll.register(pinned, select.POLLIN)
            poll.poll(max(0, int(timeout_s * 1000)))
        finally:
            os.close(pinned)
        return process.poll() is not None
    try:
        process.wait(max(0.0, timeout_s))
    except subprocess.TimeoutExpired:
        return False
    return True
