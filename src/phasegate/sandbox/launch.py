"""Start a job: create its folders, start its supervisor (sandboxed or not), send the config."""

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
from phasegate.sandbox.supervisor import OOM_SCORE, SupervisorConfig

STOP_FRACTION = 0.9
_SUPERVISOR_CODE = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from phasegate.sandbox.supervisor import main; main(int(sys.argv[2]))"
)


class StartedSupervisor(NamedTuple):
    """A running supervisor, and the parent's ends of its socket and pipes."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    stdin: int
    stdout: int
    stderr: int
    kill_at_s: float


def start_supervisor(request: JobRequest, started_s: float) -> StartedSupervisor:
    """Start the supervisor and send its config.

    It ends the job as soon as our end of `control` is closed.
    """
    request = _resolve_paths(request)
    _make_own_folders(request)
    config = _build_config(request, started_s)
    command = _build_command(request, config)
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

    # In the sandbox of root /proc is read-only: the supervisor cannot do this for its program.
    if request.level.is_sandboxed and os.geteuid() == 0:
        _raise_oom_scores(process.pid)

    # The send fails if the supervisor has already exited; its stderr has the reason then.
    with suppress(OSError):
        control.sendall(config.encode())

    return StartedSupervisor(
        process=process,
        control=control,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        kill_at_s=config.kill_at_s,
    )


def _resolve_paths(request: JobRequest) -> JobRequest:
    """Resolve the links in paths, since the sandbox contains only the link targets."""
    writable = tuple(_resolve_parent(folder) for folder in request.writable)
    cwd = Path(os.path.realpath(request.cwd))
    return request._replace(folder=_resolve_parent(request.folder), cwd=cwd, writable=writable)


def _resolve_parent(folder: Path) -> Path:
    """Resolve all but the last part: a link there is refused later if it must be writable."""
    path = os.path.normpath(folder)
    return Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _make_own_folders(request: JobRequest) -> None:
    for folder in (request.folder, request.home, request.tmp):
        if folder.is_symlink():
            raise ConfigError(
                f"{folder} is a symbolic link",
                "remove the link; a job's folders must be real folders",
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _build_config(request: JobRequest, started_s: float) -> SupervisorConfig:
    """Build the supervisor's configuration from a request."""
    env = {
        **request.env,
        "HOME": str(request.home),
        "TMPDIR": str(request.tmp),
        "PWD": str(request.cwd),
        JOB_TAG_VARIABLE: request.tag,
    }
    sandboxed = request.level.is_sandboxed
    measured_folders = [os.fsencode(folder) for folder in _list_writable(request)]
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
        measured_folders=measured_folders,
        writable=[*measured_folders, b"/dev/shm"],
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
    """Return the command that starts the supervisor, inside bubblewrap if sandboxed."""
    supervisor_command = [
        readable_paths.find_interpreter(),
        "-I",
        "-S",
        "-c",
        _SUPERVISOR_CODE,
        str(Path(readable_paths.get_package_folder()).parent),
    ]

    if not request.level.is_sandboxed:
        if request.egress_proxy is not None:
            raise ValueError("an egress proxy needs a sandbox: level none has no network namespace")
        return supervisor_command

    configured = (os.fsdecode(config.argv[0]), *request.configured_command[1:])
    folders = bubblewrap_arguments.SandboxFolders(
        _list_writable(request), request.readable, request.hidden, request.tmp
    )
    isolate_network = request.level is SandboxLevel.OFFLINE or request.egress_proxy is not None

    return [
        *bubblewrap_arguments.build_arguments(
            isolate_network, configured, request.env.get("PATH", ""), folders
        ),
        *supervisor_command,
    ]


def _open_owned_pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Open a pipe; the two stacks close its ends."""
    readable, writable = open_pipe()
    reader.callback(os.close, readable)
    writer.callback(os.close, writable)
    return readable, writable


def _raise_oom_scores(pid: int) -> None:
    """Let the kernel end bubblewrap and its child first. The program inherits it: it starts later.

    The child that is not there yet inherits it from bubblewrap.
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_bytes(OOM_SCORE)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            Path(f"/proc/{child}/oom_score_adj").write_bytes(OOM_SCORE)


def _spawn(
    request: JobRequest, command: list[str], standard: tuple[int, int, int], control: int
) -> subprocess.Popen[bytes]:
    """Start the supervisor without the job's environment.

    Secrets are sent in the config over the socket, since `ps` shows environments.
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
            f"could not start {command[0]}: {error.strerror}", "check the installation"
        ) from error
