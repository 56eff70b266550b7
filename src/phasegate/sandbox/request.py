"""What a job is asked to do, at which level and within which limits, and how it went."""

from __future__ import annotations

import resource
import socket
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.sandbox.bounded_output import CapturedOutput
from phasegate.sandbox.resource_usage import DISK, MEMORY, TASKS


class SandboxLevel(StrEnum):
    """From weakest to strongest; docs/explanation/sandbox.md says what each one holds."""

    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"

    @property
    def is_sandboxed(self) -> bool:
        return self is not SandboxLevel.NONE


MIB = 1024**2
GIB = 1024**3


class JobLimits(NamedTuple):
    """`open_files` and `file_bytes` hold for each process.

    Memory, tasks (threads too) and disk for the whole job.

    There is no RLIMIT_AS or RLIMIT_DATA: Node, the JVM and sanitizers reserve far more than they
    use.
    """

    open_files: int = 16_384
    file_bytes: int = 4 * GIB
    tasks: int = 4_096
    memory_bytes: int = 8 * GIB
    # Of what lies in its checkout and its own folders
    disk_bytes: int = 32 * GIB

    def as_rlimits(self, sandboxed: bool) -> list[tuple[int, int]]:
        """(resource, value) pairs, none above what this process may have itself."""
        wanted = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_bytes),
        ]
        # Outside a user namespace it would count everything that the person has running
        if sandboxed:
            # The quick stop of a fork bomb; the kernel never holds root to it. The warden ends it
            # at `tasks`, by name.
            wanted.append((resource.RLIMIT_NPROC, 2 * self.tasks))

        return [(which, _cap_at_hard_limit(which, value)) for which, value in wanted]

    def describe_limit(self, which: str) -> str:
        """The limit that a job came to, for people; empty: none."""
        return {
            MEMORY: f"its memory limit of {_format_size(self.memory_bytes)}",
            TASKS: f"its limit of {self.tasks} tasks",
            DISK: f"its disk limit of {_format_size(self.disk_bytes)}",
        }.get(which, "")


def _format_size(count: int) -> str:
    if count >= GIB:
        return f"{count / GIB:g} GiB"
    return f"{count / MIB:g} MiB"


def _cap_at_hard_limit(which: int, value: int) -> int:
    hard = resource.getrlimit(which)[1]
    if hard == resource.RLIM_INFINITY:
        return value
    return min(value, hard)


EGRESS_PROXY_PORT = 3128
# Inside of a network of its own
EGRESS_PROXY_URL = f"http://127.0.0.1:{EGRESS_PROXY_PORT}"
_NO_PROXY_HOSTS = "127.0.0.1,localhost,::1"
_PROXY_ENV = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"), EGRESS_PROXY_URL) | {
    "NO_PROXY": _NO_PROXY_HOSTS
}
# What leads the programs of a job to its way out.
EGRESS_PROXY_ENV = {
    **_PROXY_ENV,
    **{name.lower(): value for name, value in _PROXY_ENV.items()},
    "NODE_USE_ENV_PROXY": "1",
}


class JobProxy(Protocol):
    """What answers inside the network of a job: `phasegate.sandbox.egress_proxy.Broker` is one."""

    def serve(self, listener: socket.socket) -> None: ...

    def close(self) -> None: ...


class JobRequest(NamedTuple):
    """All that is to be known about a job before it starts. Paths are absolute."""

    argv: tuple[str, ...]
    cwd: Path
    # The job's own: its HOME and TMPDIR are made in it
    folder: Path
    # Unique; each process of the job carries it as PHASEGATE_JOB
    tag: str
    # Made by environment.scrubbed
    env: Mapping[str, str]
    level: SandboxLevel
    # SIGTERM at 0.9 of it, SIGKILL at its end
    timeout_s: float = 1800.0
    # Between the two when it is stopped early
    grace_s: float = 30.0
    stdin: bytes | Path = b""
    # For conversations: see Job.send
    keep_stdin_open: bool = False
    # The configured part of argv: the files it names stay readable wherever they lie
    configured_command: tuple[str, ...] = ()
    writable: tuple[Path, ...] = ()
    # Besides the system and what the command needs
    readable: tuple[Path, ...] = ()
    # Parts of what is readable or writable
    hidden: tuple[Path, ...] = ()
    limits: JobLimits = JobLimits()
    # Values that are taken out of its output before anybody sees it
    secrets: tuple[bytes, ...] = ()
    # Of a sandboxed job: its own network, with this as all there is
    egress_proxy: JobProxy | None = None
    # Of each stream, in memory
    max_kept_bytes: int = 8 * MIB
    stdout_log: Path | None = None
    stderr_log: Path | None = None
    # Of each stream, in its log
    max_log_bytes: int = 256 * MIB

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"


class JobOutcome(NamedTuple):
    """How a job ended. Exactly one of `exit_code` and `signal` is set, unless it was `lost`."""

    exit_code: int | None
    signal: int | None
    # SIGTERM was sent, by the clock or by `stop`
    sigterm_sent: bool
    # SIGKILL was sent, at the end of its time
    timed_out: bool
    # Its warden was killed: nobody knows how it ended
    supervisor_lost: bool
    stdout: CapturedOutput
    stderr: CapturedOutput
    duration_s: float
    # Processes that were still there when the program had ended
    survivors_killed: int
    # Processes that could not be ended: another user's, or stuck in the kernel
    survivors_left: int
    # `stop` was called before it had ended
    stop_requested: bool = False
    # The limit at which it was ended, in words
    exceeded_limit: str = ""
    # What listened to its output failed, and did not hear the rest
    listener_failed: bool = False
