"""What a job is asked to do, at which level and within which limits, and how it went."""

from __future__ import annotations

import resource
import socket
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.cage.bounded_output import Captured


class Level(StrEnum):
    """From weakest to strongest; docs/explanation/cage.md says what each one holds."""

    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"

    @property
    def is_sandboxed(self) -> bool:
        return self is not Level.NONE


GIB = 1024**3


class Limits(NamedTuple):
    """Limits of each process of a job; `memory_bytes` bounds what it can write to, not what it reserves.

    Node and the JVM reserve far more address space than they use: RLIMIT_AS would stop them, RLIMIT_DATA does not.
    `processes` counts the job's own only inside a user namespace, and the kernel never holds root to it.
    """

    open_files: int = 16_384
    file_bytes: int = 4 * GIB
    processes: int = 4_096
    memory_bytes: int | None = None

    def as_rlimits(self, sandboxed: bool) -> list[tuple[int, int]]:
        """(resource, value) pairs, none above what this process may have itself."""
        wanted = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_bytes),
        ]
        if sandboxed:  # outside a user namespace it would count everything that the person has running
            wanted.append((resource.RLIMIT_NPROC, self.processes))
        if self.memory_bytes is not None:
            wanted.append((resource.RLIMIT_DATA, self.memory_bytes))
        return [(which, _at_most_ours(which, value)) for which, value in wanted]


def _at_most_ours(which: int, value: int) -> int:
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


MIB = 1024**2
WAY_OUT_PORT = 3128
WAY_OUT = f"http://127.0.0.1:{WAY_OUT_PORT}"  # inside of a network of its own


class WayOut(Protocol):
    """What answers inside the network of a job: `phasegate.cage.broker.Broker` is one."""

    def serve(self, listener: socket.socket) -> None: ...

    def close(self) -> None: ...


class Request(NamedTuple):
    """All that is to be known about a job before it starts. Paths are absolute."""

    argv: tuple[str, ...]
    cwd: Path
    folder: Path  # the job's own: its HOME and TMPDIR are made in it
    tag: str  # unique; each process of the job carries it as PHASEGATE_JOB
    env: Mapping[str, str]  # made by environment.scrubbed
    level: Level
    timeout_s: float = 1800.0  # SIGTERM at 0.9 of it, SIGKILL at its end
    grace_s: float = 30.0  # between the two when it is stopped early
    stdin: bytes | Path = b""
    keep_stdin_open: bool = False  # for conversations: see Job.send
    command: tuple[str, ...] = ()  # the configured part of argv: the files it names stay readable wherever they lie
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()  # besides the system and what the command needs
    hidden: tuple[Path, ...] = ()  # parts of what is readable or writable
    limits: Limits = Limits()
    secrets: tuple[bytes, ...] = ()  # values that are taken out of its output before anybody sees it
    way_out: WayOut | None = None  # of a sandboxed job: its own network, with this as all there is
    keep_bytes: int = 8 * MIB  # of each stream, in memory
    stdout_log: Path | None = None
    stderr_log: Path | None = None
    log_bytes: int = 256 * MIB  # of each stream, in its log

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"


class Outcome(NamedTuple):
    """How a job ended. Exactly one of `exit_code` and `signal` is set, unless it was `lost`."""

    exit_code: int | None
    signal: int | None
    told_to_stop: bool  # SIGTERM was sent, by the clock or by `stop`
    timed_out: bool  # SIGKILL was sent, at the end of its time
    lost: bool  # its warden was killed: nobody knows how it ended
    stdout: Captured
    stderr: Captured
    duration_s: float
    survivors_killed: int  # processes that were still there when the program had ended
    survivors_left: int  # processes that could not be ended: another user's, or stuck in the kernel
    stopped: bool = False  # `stop` was called before it had ended
    unheard: bool = False  # what listened to its output failed, and did not hear the rest
