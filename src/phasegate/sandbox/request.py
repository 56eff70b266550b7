"""The request, limits and outcome of a job."""

from __future__ import annotations

import resource
import socket
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.sandbox.bounded_output import CapturedOutput
from phasegate.sandbox.resource_monitor import DISK, MEMORY, TASKS


class SandboxLevel(StrEnum):
    """The sandbox levels from weakest to strongest, described in docs/explanation/sandbox.md."""

    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"

    @property
    def is_sandboxed(self) -> bool:
        return self is not SandboxLevel.NONE


MIB = 1024**2
GIB = 1024**3


class JobLimits(NamedTuple):
    """Resource limits of a job.

    `open_files` and `file_bytes` apply to each process; memory, tasks (including threads) and disk
    apply to the whole job. RLIMIT_AS and RLIMIT_DATA are not set: Node, the JVM and sanitizers
    reserve far more memory than they use.
    """

    open_files: int = 16_384
    file_bytes: int = 4 * GIB
    tasks: int = 4_096
    memory_bytes: int = 8 * GIB
    # total size of the job's checkout and its own folders
    disk_bytes: int = 32 * GIB

    def as_rlimits(self, sandboxed: bool) -> list[tuple[int, int]]:
        """Return (resource, value) pairs, capped at the hard limits of this process."""
        wanted = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_bytes),
        ]
        # Outside a user namespace RLIMIT_NPROC would count all processes of the user.
        if sandboxed:
            # This stops a fork bomb quickly, but the kernel never applies it to root. The
            # supervisor ends the job at `tasks` and reports that limit.
            wanted.append((resource.RLIMIT_NPROC, 2 * self.tasks))

        return [(which, _cap_at_hard_limit(which, value)) for which, value in wanted]

    def describe_limit(self, which: str) -> str:
        """Describe the limit that a job exceeded; empty if none."""
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
# The address inside the job's network namespace.
EGRESS_PROXY_URL = f"http://127.0.0.1:{EGRESS_PROXY_PORT}"
_NO_PROXY_HOSTS = "127.0.0.1,localhost,::1"
_PROXY_ENV = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"), EGRESS_PROXY_URL) | {
    "NO_PROXY": _NO_PROXY_HOSTS
}
# Variables that make the programs of a job use the egress proxy.
EGRESS_PROXY_ENV = {
    **_PROXY_ENV,
    **{name.lower(): value for name, value in _PROXY_ENV.items()},
    "NODE_USE_ENV_PROXY": "1",
    # Java does not read the variables above
    "JAVA_TOOL_OPTIONS": (
        f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={EGRESS_PROXY_PORT}"
        f" -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={EGRESS_PROXY_PORT}"
    ),
}


class JobProxy(Protocol):
    """A proxy that serves the network of a job, such as `sandbox.egress_proxy.EgressProxy`."""

    def serve(self, listener: socket.socket) -> None: ...

    def close(self) -> None: ...


class JobRequest(NamedTuple):
    """Everything needed to start a job. Paths are absolute."""

    argv: tuple[str, ...]
    cwd: Path
    # job folder; its HOME and TMPDIR are created in it
    folder: Path
    # unique; each process of the job has it in PHASEGATE_JOB
    tag: str
    # created by environment.build_environment
    env: Mapping[str, str]
    level: SandboxLevel
    # SIGTERM is sent at 0.9 of it, SIGKILL at its end
    timeout_s: float = 1800.0
    # time between SIGTERM and SIGKILL when the job is stopped early
    grace_s: float = 30.0
    stdin: bytes | Path = b""
    # for interactive programs: see SandboxedJob.send
    keep_stdin_open: bool = False
    # configured part of argv; the files it names are readable wherever they are
    configured_command: tuple[str, ...] = ()
    writable: tuple[Path, ...] = ()
    # in addition to the system and what the command needs
    readable: tuple[Path, ...] = ()
    # parts of readable or writable folders
    hidden: tuple[Path, ...] = ()
    limits: JobLimits = JobLimits()
    # values to redact from the output
    secrets: tuple[bytes, ...] = ()
    # sandboxed jobs only: isolates the network; the proxy is the only access
    egress_proxy: JobProxy | None = None
    # captured in memory, per stream
    max_kept_bytes: int = 8 * MIB
    stdout_log: Path | None = None
    stderr_log: Path | None = None
    # per stream
    max_log_bytes: int = 256 * MIB

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"


class JobOutcome(NamedTuple):
    """How a job ended. One of `exit_code` and `signal` is set, unless `supervisor_lost`."""

    exit_code: int | None
    signal: int | None
    # SIGTERM was sent, near the time-out or by `stop`
    sigterm_sent: bool
    # SIGKILL was sent at the time-out
    timed_out: bool
    # the supervisor was killed, so the end of the program is unknown
    supervisor_lost: bool
    stdout: CapturedOutput
    stderr: CapturedOutput
    duration_s: float
    # processes that were still running when the program had ended
    survivors_killed: int
    # processes that could not be killed: of another user, or stuck in the kernel
    survivors_left: int
    # `stop` was called before the program had ended
    stop_requested: bool = False
    # description of the limit at which the job was ended
    exceeded_limit: str = ""
    # the output listener raised an exception and missed the rest
    listener_failed: bool = False
