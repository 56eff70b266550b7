"""What the tests of the sandbox share: requests for real jobs, payloads in Python, and eyes of their own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from phasegate.sandbox import readable_paths
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import JobRequest, SandboxLevel

SANDBOXED = [SandboxLevel.WORKTREE, SandboxLevel.OFFLINE]
ALL_LEVELS = [SandboxLevel.NONE, *SANDBOXED]
PYTHON = readable_paths.find_interpreter()


class Room(NamedTuple):
    """A folder for one test: a worktree inside, and everything else of it outside the sandbox."""

    root: Path
    worktree: Path
    token: str  # in the command line of each payload: survivors are found by it

    def request(
        self, code: str, level: SandboxLevel, *arguments: str, **changes: object
    ) -> JobRequest:
        """A job that runs a piece of Python in the worktree."""
        need(level)
        return self.program((*python(code), self.token, *arguments), level, **changes)

    def program(self, argv: tuple[str, ...], level: SandboxLevel, **changes: object) -> JobRequest:
        need(level)
        fields: dict[str, object] = {"timeout_s": 30.0, "writable": (self.worktree,), **changes}
        folder = self.root / f"job-{uuid.uuid4().hex[:8]}"
        return JobRequest(
            argv, self.worktree, folder, uuid.uuid4().hex, build_environment(), level
        )._replace(**fields)  # type: ignore[arg-type]


def make_room(root: Path) -> Room:
    worktree = root / "worktree"
    worktree.mkdir()
    return Room(root, worktree, f"token-{uuid.uuid4().hex}")


def python(code: str) -> tuple[str, ...]:
    """A program that runs this code; `sys.argv[1]` is the room's token, the rest follows it."""
    return (PYTHON, "-I", "-S", "-c", textwrap.dedent(code))


def unprotected(
    room: Room, code: str, *arguments: str, **options: object
) -> subprocess.Popen[bytes]:
    """The positive control: the same payload, started as a careless orchestrator would."""
    argv = [*python(code), room.token, *arguments]
    settings: dict[str, object] = {
        "cwd": room.worktree,
        "stdout": subprocess.PIPE,
        "start_new_session": True,
    }
    return subprocess.Popen(argv, **(settings | options))  # type: ignore[call-overload, no-any-return]


def need(level: SandboxLevel) -> None:
    """Skip, and say what could not be enforced, where this machine lacks the level."""
    found = probe_level(level)
    if not found.is_supported:
        pytest.skip(f"not enforceable here: level {level}: {found.problem}")


def processes_with(token: str) -> list[int]:
    """The living processes that carry the token in their command line."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[0]
                if token.encode() in Path(entry.path, "cmdline").read_bytes() and state != b"Z":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def kill_all_with(token: str) -> None:
    """Clean up after a positive control: these processes carry this test's own random token."""
    for pid in processes_with(token):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue


def start_orchestrator(room: Room, request: JobRequest, *options: str) -> subprocess.Popen[bytes]:
    """An orchestrator of its own process that runs this job; returns when the file `daemon` says that it is at work."""
    order = room.root / "request.pickle"
    order.write_bytes(pickle.dumps(request))
    argv = [sys.executable, str(Path(__file__).with_name("orchestrator.py")), str(order), *options]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        argv, env=env, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert eventually((room.worktree / "daemon").exists), process.communicate(timeout=5)
    return process


def eventually(condition: Callable[[], object], within_s: float = 60.0) -> bool:
    """Whether the condition comes true in time: looked at again and again."""
    give_up_at_s = time.monotonic() + within_s
    while True:
        looked_s = time.thread_time()
        if condition():
            return True
        if time.monotonic() > give_up_at_s:
            return False
        # What is waited for needs the processor: looking takes a tenth of it at most.
        time.sleep(max(0.002, 9 * (time.thread_time() - looked_s)))
