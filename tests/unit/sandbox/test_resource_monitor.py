"""What a job uses: what ended while it was looked at counts for nothing, what only looks dead counts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from phasegate.sandbox import orphans, process_tree
from phasegate.sandbox.environment import JOB_TAG_VARIABLE
from phasegate.sandbox.resource_monitor import (
    CHECK_INTERVAL_S,
    MEMORY,
    ResourceMonitor,
    read_own_memory,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: a job is measured in /proc"
)


def test_a_process_that_ended_while_it_was_looked_at_counts_for_nothing() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert read_own_memory(f"/proc/{pid}", 1 << 30) == 0, "it is a zombie"
    os.waitpid(pid, 0)
    assert read_own_memory(f"/proc/{pid}", 1 << 30) == 0, "it is gone"
    assert 0 < read_own_memory("/proc/self", 1 << 40) < 1 << 40, "the control: one that lives"


HOARDS = """
import ctypes, os, threading, time
hoard = []
def hold():
    hoard.append(b"x" * (64 << 20))
    while FIRST_ENDS and open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    print("held", flush=True)
    time.sleep(60)
threading.Thread(target=hold).start()
ctypes.CDLL(None).pthread_exit(None) if FIRST_ENDS else time.sleep(60)
"""


@pytest.fixture(params=[True, False], ids=["its first thread has ended", "the control: it has not"])
def hoarder(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    code, environment = (
        HOARDS.replace("FIRST_ENDS", str(request.param)),
        {**os.environ, JOB_TAG_VARIABLE: "a-hoarder"},
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"held\n"
        yield started
        started.kill()


def test_a_process_whose_first_thread_has_ended_is_measured_and_found(
    hoarder: subprocess.Popen[bytes],
) -> None:
    watched, roomy = (ResourceMonitor(os.getpid(), mib << 20, 0, 0, []) for mib in (48, 1 << 20))
    while time.monotonic() < watched.next_check_at_s:
        time.sleep(CHECK_INTERVAL_S / 10)
    assert (watched.find_exceeded_limit(), roomy.find_exceeded_limit()) == (MEMORY, "")
    assert hoarder.pid in process_tree.read_parents()
    assert orphans.kill_tagged_processes("a-hoarder") == 1
    assert hoarder.wait() == -9
