"""The start of a job: its own folders, its warden with or without a sandbox around it, and the
orders.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.sandbox import bubblewrap_arguments, readable_paths, seccomp
from phasegate.sandbox.environment import JOB_TAG_VARIABLE
from phasegate.sandbox.pipes import open_pipe
from phasegate.sandbox.request import EGRESS_PROXY_PORT, JobRequest, SandboxLevel
from phasegate.sandbox.run_program import find_program
from phasegate.sandbox.supervisor import SupervisorConfig

STOP_FRACTION = 0.9
_SUPERVISOR_CODE = "import sys; sys.path.append(sys.argv[1]); from phasegate.sandbox.supervisor import main; main(int(sys.argv[2]))"


class StartedSupervisor(NamedTuple):
    """A started warden and our ends of what leads to it."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    stdin: int
    stdout: int
    stderr: int
    kill_at_s: float


def start_supervisor(request: JobRequest, started_s: float) -> StartedSupervisor:
    """Start the warden and tell it what to do.

    It ends the job as soon as our end of `control` is closed.
    """
    request = _resolve_paths(request)
    _make_own_folders(request)
    orders = _build_config(request, started_s)
    command = _build_command(request, orders)
    with ExitStack() as on_failure, ExitStack() as theirs:
        control, their_control = socket.socketpair()
        on_failure.callback(control.close)
        theirs.callback(their_control.close)
        their_stdin, stdin = _open_owned_pipe(theirs, on_failure)
        stdout, their_stdout = _open_owned_pipe(on_failure, theirs)
        stderr, their_stderr = _open_owned_pipe(on_failure, theirs)
        process = _spawn(
            request, command, (their_stdin, their_stdout, their_stderr), their_control.fileno()
        )
        on_failure.pop_all()

    # When it has ended already, what it wrote to stderr says why
    with suppress(OSError):
        control.sendall(orders.encode())

    return StartedSupervisor(
        process=process,
        control=control,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        kill_at_s=orders.kill_at_s,
    )


def _resolve_paths(request: JobRequest) -> JobRequest:
    """Paths as they are inside a cage, where no link leads to them."""
    writable = tuple(_resolve_parent(folder) for folder in request.writable)
    cwd = Path(os.path.realpath(request.cwd))
    return request._replace(folder=_resolve_parent(request.folder), cwd=cwd, writable=writable)


def _resolve_parent(folder: Path) -> Path:
    """Resolved but for its last part: a link there is refused later, when it is to be written to."""
    path = os.path.normpath(folder)
    return Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _make_own_folders(request: JobRequest) -> None:
    for folder in (request.folder, request.home, request.tmp):
        if folder.is_symlink():
            raise ConfigError(
                f"{folder} is a link", "a job's own folder must be a real one: remove the link"
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _build_config(request: JobRequest, started_s: float) -> SupervisorConfig:
    own = {
        "HOME": str(request.home),
        "TMPDIR": str(request.tmp),
        "PWD": str(request.cwd),
        JOB_TAG_VARIABLE: request.tag,
    }

    env = {**request.env, **own}
    sandboxed = request.level.is_sandboxed
    return SupervisorConfig(
        argv=[os.fsencode(word) for word in _resolve_argv(request)],
        env={os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        cwd=os.fsencode(request.cwd),
        stop_at_s=started_s + STOP_FRACTION * request.timeout_s,
        kill_at_s=started_s + request.timeout_s,
        grace_s=request.grace_s,
        rlimits=request.limits.as_rlimits(sandboxed),
        resource_limits=(
            request.limits.memory_bytes,
            request.limits.tasks,
            request.limits.disk_bytes,
        ),
        measured_folders=[os.fsencode(folder) for folder in _list_writable(request)],
        writable=[os.fsencode(folder) for folder in (*_list_writable(request), Path("/dev/shm"))],  # noqa: S108 - the cage's own
        seccomp=seccomp.build_filter(platform.machine()) if sandboxed else None,
        sandboxed=sandboxed,
        proxy_port=EGRESS_PROXY_PORT if request.egress_proxy is not None else 0,
    )


def _resolve_argv(request: JobRequest) -> tuple[str, ...]:
    program = find_program(request.argv[0], path=request.env.get("PATH", ""), cwd=request.cwd)
    if program is None:
        raise EnvironmentUnavailable(
            f"{request.argv[0]} was not found", "install it, or set `command` of the agent"
        )
    return (program, *request.argv[1:])


def _list_writable(request: JobRequest) -> tuple[Path, ...]:
    return (*request.writable, request.home, request.tmp)


def _build_command(request: JobRequest, config: SupervisorConfig) -> list[str]:
    start_warden = [
        readable_paths.find_interpreter(),
        "-I",
        "-S",
        "-c",
        _SUPERVISOR_CODE,
        str(Path(readable_paths.get_package_folder()).parent),
    ]

    if not request.level.is_sandboxed:
        if request.egress_proxy is not None:
            raise ValueError("without a sandbox a job has no network of its own")
        return start_warden

    configured = (os.fsdecode(config.argv[0]), *request.configured_command[1:])
    folders = bubblewrap_arguments.SandboxFolders(
        _list_writable(request), request.readable, request.hidden, request.tmp
    )
    alone = request.level is SandboxLevel.OFFLINE or request.egress_proxy is not None

    return [
        *bubblewrap_arguments.build_arguments(
            alone, configured, request.env.get("PATH", ""), folders
        ),
        *start_warden,
    ]


def _open_owned_pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose two ends are closed with the stacks that own them."""
    readable, writable = open_pipe()
    reader.callback(os.close, readable)
    writer.callback(os.close, writable)
    return readable, writable


def _spawn(
    request: JobRequest, command: list[str], standard: tuple[int, int, int], control: int
) -> subprocess.Popen[bytes]:
    """The job's environment is no part of this.

    Secrets travel in the orders, not where `ps` shows them.
    """
    stdin, stdout, stderr = standard
    env = {JOB_TAG_VARIABLE: request.tag, "LC_ALL": "C.UTF-8"}

    try:
        return subprocess.Popen(
            [*command, str(control)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(control,),
            env=env,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentUnavailable(
            f"{command[0]} could not be started: {error.strerror}", "check the installation"
        ) from error
