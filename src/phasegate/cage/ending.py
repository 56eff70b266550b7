"""Waiting for a child of ours without looking again and again."""

from __future__ import annotations

import os
import select
import subprocess
import sys


def ends_within(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether it ended in time. `Popen.wait` sleeps between its looks, which costs a short job up to 50 ms."""
    if sys.platform == "linux" and process.poll() is None:
        pinned = os.pidfd_open(process.pid)
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
