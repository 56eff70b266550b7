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
    """From weakest to strongest; docs/explanation/cage.md says what each one holds."""

    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"

    @property
    def is_sandboxed(self) -> bool:
        return self is not SandboxLevel.NONE


MIB, GIB = 1024**2, 1024**3


class JobLimits(NamedTuple):
    """`open_files` and `file_bytes` hold for each process; memory, tasks (threads too) and disk for the whole job.

    There is no RLIMIT_AS or RLIMIT_DATA: Node, the JVM and sanitizers reserve far more than they use.
    """

    open_files: int = 16_384
    file_bytes: int = 4 * GIB
    tasks: int = 4_096
    memory_bytes: int = 8 * GIB
    disk_bytes: int = 32 * GIB  # of what lies in its checkout and its own folders

    def as_rlimits(self, sandboxed: bool) -> list[tuple[int, int]]:
        """(resource, value) pairs, none above what this process may have itself."""
        wanted = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_bytes),
        ]
        if sandboxed:  # outside a user namespace it would count everything that the person has running
            # The quick stop of a fork bomb; the kernel never holds root to it. The warden ends it at `tasks`, by name.
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
    return f"{count / GIB:g} GiB" if count >= GIB else f"{count / MIB:g} MiB"


def _cap_at_hard_limit(which: int, value: int) -> int:
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


EGRESS_PROXY_PORT = 3128
EGRESS_PROXY_URL = f"http://127.0.0.1:{EGRESS_PROXY_PORT}"  # inside of a network of its own
_NO_PROXY_HOSTS = "127.0.0.1,localhost,::1"
_PROXY_ENV = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"), EGRESS_PROXY_URL) | {"NO_PROXY": _NO_PROXY_HOSTS}
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
    folder: Path  # the job's own: its HOME and TMPDIR are made in it
    tag: str  # unique; each process of the job carries it as PHASEGATE_JOB
    env: Mapping[str, str]  # made by environment.scrubbed
    level: SandboxLevel
    timeout_s: float = 1800.0  # SIGTERM at 0.9 of it, SIGKILL at its end
    grace_s: float = 30.0  # between the two when it is stopped early
    stdin: bytes | Path = b""
    keep_stdin_open: bool = False  # for conversations: see Job.send
    configured_command: tuple[
        str, ...
    ] = ()  # the configured part of argv: the files it names stay readable wherever they lie
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()  # besides the system and what the command needs
    hidden: tuple[Path, ...] = ()  # parts of what is readable or writable
    limits: JobLimits = JobLimits()
    secrets: tuple[bytes, ...] = ()  # values that are taken out of its output before anybody sees it
    egress_proxy: JobProxy | None = None  # of a sandboxed job: its own network, with this as all there is
    max_kept_bytes: int = 8 * MIB  # of each stream, in memory
    stdout_log: Path | None = None
    stderr_log: Path | None = None
    max_log_bytes: int = 256 * MIB  # of each stream, in its log

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
    sigterm_sent: bool  # SIGTERM was sent, by the clock or by `stop`
    timed_out: bool  # SIGKILL was sent, at the end of its time
    supervisor_lost: bool  # its warden was killed: nobody knows how it ended
    stdout: CapturedOutput
    stderr: CapturedOutput
    duration_s: float
    survivors_killed: int  # processes that were still there when the program had ended
    survivors_left: int  # processes that could not be ended: another user's, or stuck in the kernel
    stop_requested: bool = False  # `stop` was called before it had ended
    exceeded_limit: str = ""  # the limit at which it was ended, in words
    listener_failed: bool = False  # what listened to its output failed, and did not hear the rest
