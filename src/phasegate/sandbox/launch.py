"""The start of a job: its own folders, its warden with or without a sandbox around it, and the orders."""

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
from phasegate.sandbox.environment import JOB_TAG
from phasegate.sandbox.pipes import open_pipe
from phasegate.sandbox.request import WAY_OUT_PORT, Level, Request
from phasegate.sandbox.run_program import find_program
from phasegate.sandbox.supervisor import Orders

STOP_AT = 0.9
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from phasegate.sandbox.supervisor import main; main(int(sys.argv[2]))"
)


class Launched(NamedTuple):
    """A started warden and our ends of what leads to it."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    stdin: int
    stdout: int
    stderr: int
    end_at_s: float


def launch(request: Request, started_s: float) -> Launched:
    """Start the warden and tell it what to do. It ends the job as soon as our end of `control` is closed."""
    request = _resolved(request)
    _make_own_folders(request)
    orders = _orders(request, started_s)
    command = _command(request, orders)
    with ExitStack() as on_failure, ExitStack() as theirs:
        control, their_control = socket.socketpair()
        on_failure.callback(control.close)
        theirs.callback(their_control.close)
        their_stdin, stdin = _open(theirs, on_failure)
        stdout, their_stdout = _open(on_failure, theirs)
        stderr, their_stderr = _open(on_failure, theirs)
        process = _spawn(request, command, (their_stdin, their_stdout, their_stderr), their_control.fileno())
        on_failure.pop_all()
    with suppress(OSError):  # when it has ended already, what it wrote to stderr says why
        control.sendall(orders.encoded())
    return Launched(process, control, stdin, stdout, stderr, orders.end_at_s)


def _resolved(request: Request) -> Request:
    """Paths as they are inside a cage, where no link leads to them."""
    writable = tuple(_without_links(folder) for folder in request.writable)
    cwd = Path(os.path.realpath(request.cwd))
    return request._replace(folder=_without_links(request.folder), cwd=cwd, writable=writable)


def _without_links(folder: Path) -> Path:
    """Resolved but for its last part: a link there is refused later, when it is to be written to."""
    path = os.path.normpath(folder)
    return Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _make_own_folders(request: Request) -> None:
    for folder in (request.folder, request.home, request.tmp):
        if folder.is_symlink():
            raise ConfigError(f"{folder} is a link", "a job's own folder must be a real one: remove the link")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _orders(request: Request, started_s: float) -> Orders:
    own = {"HOME": str(request.home), "TMPDIR": str(request.tmp), "PWD": str(request.cwd), JOB_TAG: request.tag}
    env = {**request.env, **own}
    sandboxed = request.level.is_sandboxed
    return Orders(
        argv=[os.fsencode(word) for word in _found(request)],
        env={os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        cwd=os.fsencode(request.cwd),
        stop_at_s=started_s + STOP_AT * request.timeout_s,
        end_at_s=started_s + request.timeout_s,
        grace_s=request.grace_s,
        rlimits=request.limits.as_rlimits(sandboxed),
        bounds=(request.limits.memory_bytes, request.limits.tasks, request.limits.disk_bytes),
        folders=[os.fsencode(folder) for folder in _writable(request)],
        writable=[os.fsencode(folder) for folder in (*_writable(request), Path("/dev/shm"))],  # noqa: S108 - the cage's own
        seccomp=seccomp.filter_for(platform.machine()) if sandboxed else None,
        sandboxed=sandboxed,
        listen_port=WAY_OUT_PORT if request.way_out is not None else 0,
    )


def _found(request: Request) -> tuple[str, ...]:
    program = find_program(request.argv[0], path=request.env.get("PATH", ""), cwd=request.cwd)
    if program is None:
        raise EnvironmentUnavailable(f"{request.argv[0]} was not found", "install it, or set `command` of the agent")
    return (program, *request.argv[1:])


def _writable(request: Request) -> tuple[Path, ...]:
    return (*request.writable, request.home, request.tmp)


def _command(request: Request, orders: Orders) -> list[str]:
    start_warden = [
        readable_paths.interpreter(),
        "-I",
        "-S",
        "-c",
        _BOOT,
        str(Path(readable_paths.package_folder()).parent),
    ]
    if not request.level.is_sandboxed:
        if request.way_out is not None:
            raise ValueError("without a sandbox a job has no network of its own")
        return start_warden
    configured = (os.fsdecode(orders.argv[0]), *request.command[1:])
    folders = bubblewrap_arguments.Folders(_writable(request), request.readable, request.hidden, request.tmp)
    alone = request.level is Level.OFFLINE or request.way_out is not None
    return [*bubblewrap_arguments.arguments(alone, configured, request.env.get("PATH", ""), folders), *start_warden]


def _open(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose two ends are closed with the stacks that own them."""
    readable, writable = open_pipe()
    reader.callback(os.close, readable)
    writer.callback(os.close, writable)
    return readable, writable


def _spawn(
    request: Request, command: list[str], standard: tuple[int, int, int], control: int
) -> subprocess.Popen[bytes]:
    """The job's environment is no part of this: secrets travel in the orders, not where `ps` shows them."""
    stdin, stdout, stderr = standard
    env = {JOB_TAG: request.tag, "LC_ALL": "C.UTF-8"}
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
