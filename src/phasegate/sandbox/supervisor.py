"""The small process between us and a caged program: it starts it, times it, and ends all that is left of it.

It runs as a program of its own (`python -I -S`), so cheap imports only. At a sandboxed level it is the first process
of the job's PID namespace: nothing inside can signal it, and when it ends the kernel ends everything inside. At level
`none` it adopts every orphan instead. It holds one end of a socket to us. When that closes, however we came to our
end, it kills the job and goes.

From us: the orders, then one byte a wish: STOP or END. To us: one line a fact.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time

from phasegate.core.text.light_tuple import Light
from phasegate.sandbox import process_tree, syscalls
from phasegate.sandbox.resource_usage import Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal  # `signal` imports enum: 5 ms

STOP, END = b"s", b"e"
_LINUX = sys.platform == "linux"
_GIVE_UP_S = 5.0
_LENGTH_BYTES = 8
_REPORT_FD = 3
# The kernel looks for memory among agents before it looks among people's programs, ours included.
_OOM_SCORE = b"700"


class Orders(Light):
    """What the warden is told before it starts anything: plain values, by marshal."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    stop_at_s: float  # times are of the monotonic clock, which all processes share
    end_at_s: float
    grace_s: float
    rlimits: list[tuple[int, int]]
    bounds: tuple[int, int, int]  # of memory, tasks and disk
    writable: list[bytes]
    folders: list[bytes]  # that are measured
    seccomp: bytes | None
    sandboxed: bool
    listen_port: int = 0  # where the job's way out answers; 0: it has none

    def encoded(self) -> bytes:
        data = marshal.dumps(self._asdict())
        return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def main(control: int) -> None:
    """Carry out the orders that come through `control`, report, and end."""
    os.set_inheritable(control, False)
    if _LINUX:
        syscalls.hide_own_memory()
        syscalls.adopt_orphans()
    orders = _receive_orders(control)
    if orders.listen_port:
        _hand_out_listener(control, orders.listen_port)
    child_ended = _wake_on_child()
    _ignore_signals()
    pid = _start(orders, control)
    _let_go_of_pipes()
    _tell(control, b"started")
    _Watch(orders, control, child_ended, pid).until_it_ends()


class _Watch:
    def __init__(self, orders: Orders, control: int, child_ended: int, pid: int) -> None:
        self._orders = orders
        self._end_at_s = orders.end_at_s
        self._control = control
        self._child_ended = child_ended
        self._pid = pid
        self._told_to_stop = False
        self._timed_out = False
        self._status: int | None = None
        self._over = ""
        self._watched = Watched(os.getpid(), *orders.bounds, orders.folders) if _LINUX else None

    def until_it_ends(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._child_ended, select.POLLIN)
        while self._status is None:
            now_s = time.monotonic()
            if now_s >= self._end_at_s:
                self._timed_out = True
                break
            if self._watched is not None and (over := self._watched.exceeded()):
                self._over = over
                break
            if now_s >= self._orders.stop_at_s and not self._told_to_stop:
                self._stop()
            ready = dict(poll.poll(self._wait_ms(now_s)))
            if self._child_ended in ready:
                self._look_at_children()
            if self._control in ready and not self._obey():
                break
        self._finish()

    def _wait_ms(self, now_s: float) -> int:
        at_s = self._end_at_s if self._told_to_stop else self._orders.stop_at_s
        if self._watched is not None:
            at_s = min(at_s, self._watched.next_at_s)
        return max(0, min(int((at_s - now_s) * 1000) + 1, 3_600_000))

    def _stop(self) -> None:
        self._told_to_stop = True
        if os.getpid() == 1:
            os.kill(-1, _signal.SIGTERM)
        else:
            process_tree.signal_below(os.getpid(), _signal.SIGTERM)
        _tell(self._control, b"stopping")

    def _obey(self) -> bool:
        """Carry out a wish; False when the job is to end at once, because we are told so or because nobody is there."""
        try:
            wish = os.read(self._control, 1)
        except ConnectionError:
            return False
        if wish != STOP:
            return False
        if not self._told_to_stop:
            self._stop()
        self._end_at_s = min(self._end_at_s, time.monotonic() + self._orders.grace_s)
        return True

    def _look_at_children(self) -> None:
        os.read(self._child_ended, 512)
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
        """End whatever is left, then report: what comes after the report was written by nobody of ours."""
        if not _LINUX:  # nobody's orphans come to us here: what still can be seen is ended first
            process_tree.signal_below(os.getpid(), process_tree.SIGKILL)
            _kill_group(self._pid)
        ended_by_itself = self._status is not None
        if self._over:
            _tell(self._control, f"over {self._over}".encode())
        if self._status is None:
            _tell(self._control, b"killing")
            self._status = _end_first(self._pid)
        killed, left = process_tree.end_children(time.monotonic() + _GIVE_UP_S)
        if killed and ended_by_itself:
            _tell(self._control, b"killing")
        facts = (self._status, killed, left, int(self._timed_out), int(self._told_to_stop))
        _tell(self._control, b"ended %d %d %d %d %d" % facts)


def _end_first(pid: int) -> int:
    """Kill the program itself first, so that its own status is known, and not that of one of its children."""
    os.kill(pid, process_tree.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, process_tree.SIGKILL)
    except OSError:
        return


def _start(orders: Orders, control: int) -> int:
    """Fork and exec; a failure between the two is reported with its step, and the warden ends."""
    failure_read, failure_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(orders, failure_write)
    os.close(failure_write)
    failure = os.read(failure_read, 4096)
    os.close(failure_read)
    if failure:
        _tell(control, b"failed " + failure)
        os._exit(0)
    return pid


def _become(orders: Orders, failure: int) -> NoReturn:
    """Turn this forked copy into the program. Nothing of ours is left in it but three descriptors."""
    step = "prepare"
    try:
        _default_signals()
        os.setsid()
        if _LINUX:
            syscalls.die_with_parent(process_tree.SIGKILL)
            syscalls.hide_own_memory(False)  # its files in /proc would be root's
            _volunteer_for_oom()
        step = "limit"
        _limit(orders.rlimits)
        step = "enter"
        os.chdir(orders.cwd)
        step = "confine"
        failure = _close_all_but(failure)
        _confine(orders)
        step = "start"
        os.execve(orders.argv[0], orders.argv, orders.env)  # noqa: S606 - an argument list, no shell
    except BaseException as error:  # a forked copy must never run on
        number = error.errno if isinstance(error, OSError) and error.errno else 0
        os.write(failure, f"{step} {number} {error}".encode("utf-8", "replace")[:4000])
    os._exit(127)


def _confine(orders: Orders) -> None:
    if not orders.sandboxed:
        return
    version = syscalls.landlock_version()
    if version:
        syscalls.restrict_writes(orders.writable, version)
    if orders.seccomp is not None:
        syscalls.load_seccomp(orders.seccomp)


def _limit(rlimits: list[tuple[int, int]]) -> None:
    import resource

    for which, value in rlimits:
        resource.setrlimit(which, (value, value))


def _volunteer_for_oom() -> None:
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
            score.write(_OOM_SCORE)
    except OSError:
        return  # a help, not a promise


def _close_all_but(failure: int) -> int:
    """Only 0, 1, 2 and the failure pipe, which closes by itself on exec, stay open."""
    if failure != _REPORT_FD:
        os.dup2(failure, _REPORT_FD, inheritable=False)
    os.closerange(_REPORT_FD + 1, 1 << 20 if _LINUX else os.sysconf("SC_OPEN_MAX"))  # one call on Linux, many elsewhere
    return _REPORT_FD


def _default_signals() -> None:
    """Python ignores SIGPIPE and SIGXFSZ, we ignore some more, and what is ignored stays so across exec."""
    _signal.set_wakeup_fd(-1)
    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            continue


def _ignore_signals() -> None:
    """A signal meant for the job, or for us at the terminal, does not end the one who cleans up."""
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(number, _signal.SIG_IGN)


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    return readable


def _hand_out_listener(control: int, port: int) -> None:
    """Make a socket that listens in the job's own network, and give it to us, outside: nothing inside has it."""
    import _socket  # `socket` imports enum and selectors

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    channel = _socket.socket(fileno=os.dup(control))
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        right = listener.fileno().to_bytes(4, sys.byteorder)
        channel.sendmsg([b"listening\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, right)])
    except OSError as error:
        _tell(control, f"failed listen {error.errno} {error}".encode("utf-8", "replace"))
        os._exit(0)
    channel.close()
    listener.close()


def _let_go_of_pipes() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)


def _tell(control: int, fact: bytes) -> None:
    try:
        os.write(control, fact + b"\n")
    except OSError:
        return  # nobody listens any more; the job is ended all the same


def _receive_orders(control: int) -> Orders:
    length = int.from_bytes(_read_exactly(control, _LENGTH_BYTES), "big")
    return Orders(**marshal.loads(_read_exactly(control, length)))  # noqa: S302 - only our parent holds the other end


def _read_exactly(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(descriptor, count - len(data))
        if not part:
            os._exit(0)
        data += part
    return data
