"""A disk that fails (O02): the n-th write, sync or rename of a dispatch says EIO or ENOSPC.

It stops with a message, nothing that was acknowledged is lost, and the next command goes on. `strace` makes the call
fail in every process that comes to its n-th.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.power_loss import can_trace
from support.preloaded import Preloaded
from support.quick_dispatch import one_agent_counted

pytestmark = pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")
FAILING = {
    "write": "write",
    "write of the store": "pwrite64",
    "sync": "fsync,fdatasync,pwritev2",
    "rename": "rename,renameat,renameat2",
}
SAMPLE = [
    ("write", "ENOSPC", 14),
    ("write of the store", "EIO", 8),
    ("sync", "EIO", 4),
    ("rename", "ENOSPC", 10),
]
DISPATCH = ("dispatch", "WP01")


class FailingDisk:
    """A project, made anew for each failure."""

    def __init__(self, folder: Path) -> None:
        self.top, self._before, self._log = folder / "disk", folder / "before", folder / "log"
        self._env = {**os.environ, "XDG_STATE_HOME": str(self.top / "state")}
        self.top.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", self._env["XDG_STATE_HOME"])
            one_agent_counted(self.top)
        shutil.copytree(self.top, self._before, symlinks=True)
        self.ours = Preloaded(folder / "answer", self._env)

    def stopped(self, under: Iterable[str]) -> subprocess.CompletedProcess[str]:
        argv = [*under, sys.executable, "-m", "phasegate", *DISPATCH]
        repo = self.top / "repo"
        return subprocess.run(
            argv, cwd=repo, env=self._env, capture_output=True, text=True, timeout=300
        )

    def fails(self, what: str, error: str, when: int) -> bool:
        """Have one kind of call fail, and go on after it; whether any call had come to fail."""
        shutil.rmtree(self.top)
        shutil.copytree(self._before, self.top, symlinks=True)
        calls, where = FAILING[what], f"{what} {when} fails with {error}"
        inject = ("-e", f"trace={calls}", "-e", f"inject={calls}:error={error}:when={when}")
        under = (
            "strace",
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-o",
            str(self._log),
            "-e",
            "signal=none",
            "-s0",
            *inject,
        )
        stopped = self.stopped(under)
        assert stopped.returncode in (0, 1, 3, 4), f"{where}\n{stopped.stderr}"
        assert "Traceback" not in stopped.stderr, f"{where}\n{stopped.stderr}"
        repo = self.top / "repo"
        again = self.ours.command(repo, *DISPATCH)
        assert again.returncode == 0, f"{where}\n{stopped.stderr}\n{again.stdout}"
        verified = self.ours.command(repo, "audit", "verify")
        assert verified.returncode == 0, f"{where}\n{verified.stdout}"
        fsck = ["git", "-C", str(repo), "fsck", "--strict", "--no-dangling"]
        assert subprocess.run(fsck, capture_output=True).returncode == 0, where
        return b"(INJECTED)" in self._log.read_bytes()


@pytest.mark.demand("W5.c", "D13.i")
def test_a_disk_that_fails_stops_a_dispatch_cleanly_and_the_next_one_goes_on(folder: Path) -> None:
    disk = FailingDisk(folder)
    with disk.ours:
        assert all(disk.fails(*one) for one in SAMPLE), "nothing failed: the test shows nothing"


@pytest.mark.long
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EROFS"])
@pytest.mark.parametrize("what", FAILING)
def test_whichever_call_fails_the_next_dispatch_goes_on(
    folder: Path, kept: Path, until: float, what: str, error: str
) -> None:
    """The first, the second, and so on, until nothing comes to so many."""
    disk, note = FailingDisk(folder), kept / f"{what} {error}"
    shown = int(note.read_text()) if note.exists() else 0
    with disk.ours:
        while disk.fails(what, error, shown + 1):
            shown += 1
            note.write_text(str(shown))
            if time.monotonic() > until:
                pytest.skip(f"{shown} shown, there are more")
    assert shown > 10
