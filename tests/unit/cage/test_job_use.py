"""What a job uses: processes that end while they are looked at count for nothing."""

from __future__ import annotations

import os
import sys

import pytest

from phasegate.cage.job_use import own_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not enforceable here: a job is measured in /proc")


def test_a_process_that_ended_while_it_was_looked_at_counts_for_nothing() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert own_memory(pid, 1 << 30) == 0, "it is a zombie"
    os.waitpid(pid, 0)
    assert own_memory(pid, 1 << 30) == 0, "it is gone"
    assert 0 < own_memory(os.getpid(), 1 << 40) < 1 << 40, "the control: one that lives"
