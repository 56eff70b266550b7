"""The supervisor process of a job: starts the program, applies limits, kills the rest of its
processes.

It runs as its own program (`python -I -S`), so it uses cheap imports only. At a sandboxed level it
is the first process of the job's PID namespace: no process inside can signal it, and when it ends,
the kernel ends the whole namespace. At level `none` it adopts every orphan instead. It has one end
of a socket to the main process. When that is closed, for whatever reason the main process ended, it
kills the job and exits.

Protocol: the main process sends the config, then one byte per command: STOP or KILL. The supervisor
sends one line per fact.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time

from phasegate.core.text.light_tuple import Light
from phasegate.sandbox import process_tree, syscalls
from phasegate.sandbox.resource_monitor import ResourceMonitor

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    # `signal` imports enum, which takes 5 ms.
    import _signal

STOP = b"s"
KILL = b"e"
_LINUX = sys.platform == "linux"
_KILL_TIMEOUT_S = 5.0
_LENGTH_BYTES = 8
_FAILURE_FD = 3
# When memory runs out, the kernel kills agents before other programs, including Phasegate.
OOM_SCORE = b"700"


class SupervisorConfig(Light):
    """The configuration of the supervisor: plain values, encoded with marshal."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    # times are of the monotonic clock, which all processes share
    stop_at_s: float
    kill_at_s: float
    grace_s: float
    rlimits: list[tuple[int, int]]
    # memory bytes, tasks, disk bytes
    resource_limits: tuple[int, int, int]
    writable: list[bytes]
    # counted for the disk limit
    measured_folders: list[bytes]
    seccomp: bytes | None
    sandboxed: bool
    # port of the egress proxy; 0 if the job has none
    proxy_port: int = 0

    def encode(self) -> bytes:
        data = marshal.dumps(self._asdict())
        return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def main(control: int) -> None:
    """Receive the config through `control`, run the program, report its end, and exit."""
    os.set_inheritable(control, False)
    if _LINUX:
        syscalls.hide_own_memory()
        syscalls.adopt_orphans()

    config = _receive_config(control)
    if config.proxy_port:
        _send_listener(control, config.proxy_port)

    child_wakeup_fd = _open_child_wakeup()
    _ignore_signals()
    pid = _start_program(config, control)
    _release_pipes()
    _send_fact(control, b"started")
    _JobMonitor(config, control, child_wakeup_fd, pid).run()


class _JobMonitor:
    def __init__(
        self, config: SupervisorConfig, control: int, child_wakeup_fd: int, pid: int
    ) -> None:
        self._config = config
        self._kill_at_s = config.kill_at_s
        self._control = control
        self._child_wakeup_fd = child_wakeup_fd
        self._pid = pid
        self._sigterm_sent = False
        self._timed_out = False
        self._status: int | None = None
        self._exceeded_limit = ""
        self._resource_monitor: ResourceMonitor | None = None
        if _LINUX:
            self._resource_monitor = ResourceMonitor(
                os.getpid(), *config.resource_limits, config.measured_folders
            )

    def run(self) -> None:
        """Watch the job until it ends, is stopped or exceeds a limit; then clean up."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._child_wakeup_fd, select.POLLIN)

        while self._status is None:
            now_s = time.monotonic()
            if now_s >= self._kill_at_s:
                self._timed_out = True
                break

            if self._resource_monitor is not None:
                self._exceeded_limit = self._resource_monitor.find_exceeded_limit()
                if self._exceeded_limit:
                    break

            if now_s >= self._config.stop_at_s and not self._sigterm_sent:
                self._send_sigterm()

            ready = dict(poll.poll(self._wait_ms(now_s)))
            if self._child_wakeup_fd in ready:
                self._reap_children()
            if self._control in ready and not self._handle_command():
                break

        self._finish()

    def _wait_ms(self, now_s: float) -> int:
        next_at_s = self._kill_at_s if self._sigterm_sent else self._config.stop_at_s
        if self._resource_monitor is not None:
            next_at_s = min(next_at_s, self._resource_monitor.next_check_at_s)
        return max(0, min(int((next_at_s - now_s) * 1000) + 1, 3_600_000))

    def _send_sigterm(self) -> None:
        self._sigterm_sent = True
        if os.getpid() == 1:
            os.kill(-1, _signal.SIGTERM)
        else:
            process_tree.signal_descendants(os.getpid(), _signal.SIGTERM)
        _send_fact(self._control, b"stopping")

    def _handle_command(self) -> bool:
        """Handle a command; return False if the job must be killed now.

        That is on KILL, and when the main process has closed its end of the socket.
        """
        try:
            command = os.read(self._control, 1)
        except ConnectionError:
            return False

        if command != STOP:
            return False
        if not self._sigterm_sent:
            self._send_sigterm()

        self._kill_at_s = min(self._kill_at_s, time.monotonic() + self._config.grace_s)
        return True

    def _reap_children(self) -> None:
        os.read(self._child_wakeup_fd, 512)
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self._pid:
                    self._status = status
                if not pid:
                    return
        except ChildProcessError:
            return

    def _finish(self) -> None:
        """Kill the remaining processes, then report the end.

        Output that arrives after the report does not come from the job.
        """
        # Without Linux orphans are not adopted: kill the processes that are still visible first.
        if not _LINUX:
            process_tree.signal_descendants(os.getpid(), process_tree.SIGKILL)
            _kill_group(self._pid)

        ended_by_itself = self._status is not None
        if self._exceeded_limit:
            _send_fact(self._control, f"over {self._exceeded_limit}".encode())
        if self._status is None:
            _send_fact(self._control, b"killing")
            self._status = _kill_program(self._pid)

        killed, left = process_tree.kill_all_children(time.monotonic() + _KILL_TIMEOUT_S)
        if killed and ended_by_itself:
            _send_fact(self._control, b"killing")

        facts = (self._status, killed, left, int(self._timed_out), int(self._sigterm_sent))
        _send_fact(self._control, b"ended %d %d %d %d %d" % facts)


def _kill_program(pid: int) -> int:
    """Kill the program itself and return its wait status."""
    os.kill(pid, process_tree.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, process_tree.SIGKILL)
    except OSError:
        return


def _start_program(config: SupervisorConfig, control: int) -> int:
    """Fork and exec; on a failure report the step that failed and exit."""
    failure_read, failure_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec_program(config, failure_write)

    os.close(failure_write)
    failure = os.read(failure_read, 4096)
    os.close(failure_read)
    if failure:
        _send_fact(control, b"failed " + failure)
        os._exit(0)

    return pid


def _exec_program(config: SupervisorConfig, failure_fd: int) -> NoReturn:
    """Turn this forked process into the program; it keeps only the three standard descriptors."""
    step = "prepare"

    try:
        _restore_signals()
        os.setsid()

        if _LINUX:
            syscalls.die_with_parent(process_tree.SIGKILL)
            # Otherwise its files in /proc would belong to root.
            syscalls.hide_own_memory(False)
            _raise_oom_score()

        step = "limit"
        _set_rlimits(config.rlimits)
        step = "enter"
        os.chdir(config.cwd)
        step = "confine"
        failure_fd = _close_descriptors(failure_fd)
        _confine(config)
        step = "start"
        os.execve(config.argv[0], config.argv, config.env)  # noqa: S606 - no shell
    except BaseException as error:
        # The forked process must never return into the supervisor's code.
        number = 0
        if isinstance(error, OSError) and error.errno:
            number = error.errno

        os.write(failure_fd, f"{step} {number} {error}".encode("utf-8", "replace")[:4000])

    os._exit(127)


def _confine(config: SupervisorConfig) -> None:
    if not config.sandboxed:
        return

    version = syscalls.get_landlock_version()
    if version:
        syscalls.restrict_writes(config.writable, version)
    if config.seccomp is not None:
        syscalls.load_seccomp(config.seccomp)


def _set_rlimits(rlimits: list[tuple[int, int]]) -> None:
    import resource

    for which, value in rlimits:
        resource.setrlimit(which, (value, value))


def _raise_oom_score() -> None:
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
            score.write(OOM_SCORE)
    except OSError:
        # Best effort.
        return


def _close_descriptors(failure_fd: int) -> int:
    """Close all descriptors but 0, 1, 2 and the failure pipe, which is closed on exec."""
    if failure_fd != _FAILURE_FD:
        os.dup2(failure_fd, _FAILURE_FD, inheritable=False)
    # One system call on Linux; one per descriptor elsewhere, so the range must be small.
    os.closerange(_FAILURE_FD + 1, 1 << 20 if _LINUX else os.sysconf("SC_OPEN_MAX"))
    return _FAILURE_FD


def _restore_signals() -> None:
    """Restore the default handlers.

    Python ignores SIGPIPE and SIGXFSZ, the supervisor ignores more, and exec keeps that.
    """
    _signal.set_wakeup_fd(-1)

    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            continue


def _ignore_signals() -> None:
    """Ignore signals meant for the job or for the terminal, so that the cleanup always runs."""
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(number, _signal.SIG_IGN)


def _open_child_wakeup() -> int:
    """Open a descriptor that becomes readable when a child ends."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    return readable


def _send_listener(control: int, port: int) -> None:
    """Open a listening socket in the job's network and pass it to the main process.

    No process of the job has it.
    """
    # `socket` imports enum and selectors, which is slow.
    import _socket

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    channel = _socket.socket(fileno=os.dup(control))

    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        descriptor = listener.fileno().to_bytes(4, sys.byteorder)
        channel.sendmsg([b"listening\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor)])
    except OSError as error:
        _send_fact(control, f"failed listen {error.errno} {error}".encode("utf-8", "replace"))
        os._exit(0)

    channel.close()
    listener.close()


def _release_pipes() -> None:
    null_fd = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null_fd, standard)
    os.close(null_fd)


def _send_fact(control: int, fact: bytes) -> None:
    try:
        os.write(control, fact + b"\n")
    except OSError:
        # The main process is gone; the job is ended anyway.
        return


def _receive_config(control: int) -> SupervisorConfig:
    length = int.from_bytes(_read_exactly(control, _LENGTH_BYTES), "big")
    # The data is trusted: only the main process has the other end.
    return SupervisorConfig(**marshal.loads(_read_exactly(control, length)))  # noqa: S302


def _read_exactly(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(descriptor, count - len(data))
        if not part:
            os._exit(0)

        data += part

    return data
