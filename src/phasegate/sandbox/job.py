"""One caged program from its start to its end.

Bounded in time and memory, and nothing of it left behind.

`Job.run` blocks, and ends when the program ends, not when its output does: a daemon that keeps the
pipe open holds up nobody. Run it in the thread that should wait: several threads can each run one,
and `stop`, `send` and `close_stdin` may be called from any. The kernel ends a cage together with
the thread that made it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Event, Lock
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, Interrupted
from phasegate.sandbox import orphans
from phasegate.sandbox.bounded_output import BoundedLog, OutputStream
from phasegate.sandbox.launch import StartedSupervisor, start_supervisor
from phasegate.sandbox.pipes import InputPipe, OutputPipe, iterate_chunks
from phasegate.sandbox.request import JobOutcome, JobRequest, SandboxLevel
from phasegate.sandbox.run_program import wait_for_exit
from phasegate.sandbox.supervisor import KILL, STOP


class _SupervisorReport:
    """The facts so far, line by line as they come; before the first one nothing has started."""

    def __init__(self) -> None:
        self._partial_line = b""
        self._has_started = False
        self._failure = ""
        # Those that were sent to the program
        self.signals: list[str] = []
        self.has_ended = False
        self.sigterm_sent = False
        self.timed_out = False
        # The limit that it came to
        self.exceeded_limit = ""
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.survivors_killed = 0
        self.survivors_left = 0

    def feed(self, data: bytes) -> None:
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            fact, _, details = line.decode("utf-8", "replace").partition(" ")
            self._apply_fact(fact, details)

    def raise_if_not_started(self, request: JobRequest, stderr: str) -> None:
        if self._failure:
            raise _explain_start_failure(request, self._failure)

        if not self._has_started:
            why = stderr.strip() or "it ended without a word"
            raise EnvironmentUnavailable(
                f"The cage of level {request.level} could not be made: {why}",
                "`phasegate agents` shows which levels hold here",
            )

    def _apply_fact(self, fact: str, details: str) -> None:
        if fact == "started":
            self._has_started = True
        elif fact == "failed":
            self._failure = details
        elif fact == "stopping":
            self.sigterm_sent = True
            self.signals.append("SIGTERM")
        elif fact == "killing":
            self.signals.append("SIGKILL")
        elif fact == "over":
            self.exceeded_limit = details
        elif fact == "ended":
            self._apply_end(details)

    def _apply_end(self, details: str) -> None:
        status, killed, left, timed_out, told_to_stop = (int(number) for number in details.split())
        self.has_ended = True
        self.survivors_killed = killed
        self.survivors_left = left
        self.timed_out = bool(timed_out)
        self.sigterm_sent = bool(told_to_stop)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            self.exit_code, self.signal = (code, None)
        else:
            self.exit_code, self.signal = (None, -code)


def _explain_start_failure(request: JobRequest, failure: str) -> EnvironmentUnavailable:
    step, number, text = failure.split(" ", 2)
    program = request.argv[0]

    if step != "start":
        return EnvironmentUnavailable(
            f"{program} could not be started: {step}: {text}",
            "`phasegate agents` shows what holds here",
        )

    hints = {
        errno.ENOENT: "it, or the interpreter that its first line names, is not there (or not visible in the cage)",
        errno.EACCES: "it may not be executed: chmod +x",
        errno.ENOEXEC: "it is neither a binary of this machine nor a script that begins with #!",
        errno.E2BIG: "its arguments are too long: pass text on standard input or in a file",
    }
    return EnvironmentUnavailable(
        f"{program} could not be started: {text}", hints.get(int(number), "check the command")
    )


OnOutput = Callable[[OutputStream, bytes], None]
OnSignal = Callable[[str], None]
_STOP_COMMANDS = (STOP, KILL)
# The warden gives up on a process after 5 s; after this we give up on the warden
_SUPERVISOR_TIMEOUT_S = 8.0


class _PendingCommands(NamedTuple):
    """What other threads want of a running job."""

    stops: int
    data: list[bytes]
    close_stdin: bool


class SandboxedJob:
    """A job that other threads can talk to while `run` runs it. It runs once."""

    def __init__(self, request: JobRequest) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._pending = _PendingCommands(0, [], not request.keep_stdin_open)
        self._wake_fd: int | None = None

    def stop(self) -> None:
        """Ask the program to end.

        SIGTERM, and SIGKILL after the grace period; a second call kills at once.
        """
        with self._lock:
            self._pending = self._pending._replace(stops=self._pending.stops + 1)
            self._wake_up()

    def send(self, data: bytes) -> None:
        """Add to the program's standard input, which must have been kept open."""
        with self._lock:
            if self._pending.close_stdin:
                raise ValueError("the standard input of this job is closed")
            self._pending.data.append(data)
            self._wake_up()

    def close_stdin(self) -> None:
        with self._lock:
            self._pending = self._pending._replace(close_stdin=True)
            self._wake_up()

    def run(
        self, on_output: OnOutput | None = None, on_signal: OnSignal | None = None
    ) -> JobOutcome:
        """Run to the end and say how it went.

        Raises EnvironmentUnavailable when it could not be started.

        `on_output` is called here, piece by piece, as output comes. While it works, the program
        waits: keep it short. `on_signal` hears of SIGTERM and SIGKILL when they are sent.
        """
        started_s = time.monotonic()
        with ExitStack() as stack:
            pump = _JobLoop(
                self._request,
                start_supervisor(self._request, started_s),
                on_output,
                stack,
                on_signal,
            )

            self._set_wake_fd(pump.wake_fd)
            stack.callback(self._set_wake_fd, None)
            while pump.is_running:
                pump.poll_once(self._take_pending())

            return pump.build_outcome(time.monotonic() - started_s)

    def _take_pending(self) -> _PendingCommands:
        with self._lock:
            taken = self._pending
            self._pending = taken._replace(data=[])
            return taken

    def _set_wake_fd(self, descriptor: int | None) -> None:
        with self._lock:
            self._wake_fd = descriptor

    def _wake_up(self) -> None:
        if self._wake_fd is not None:
            with suppress(BlockingIOError):
                os.write(self._wake_fd, b"!")


class _JobLoop:
    """Moves a job's input and output, and hears its warden.

    Leaving `stack` ends the job, however it is left.
    """

    def __init__(
        self,
        request: JobRequest,
        supervisor: StartedSupervisor,
        on_output: OnOutput | None,
        stack: ExitStack,
        on_signal: OnSignal | None = None,
    ) -> None:
        self._request = request
        self._supervisor = supervisor
        self._stack = stack
        stack.callback(self.end_supervisor)
        if request.egress_proxy is not None:
            stack.callback(request.egress_proxy.close)

        for descriptor in (supervisor.stdout, supervisor.stderr):
            stack.callback(os.close, descriptor)

        self._report = _SupervisorReport()
        self._on_signal = on_signal
        self._give_up_at_s = supervisor.kill_at_s + _SUPERVISOR_TIMEOUT_S
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], bool]] = {}
        self._stops_sent = 0
        self._orphans_killed = 0
        self._ended = False
        self.is_running = True
        self.wake_fd = self._open_wake_pipe()
        self._stdin = self._open_input_pipe()
        self._stdout = self._open_output_pipe(OutputStream.STDOUT, supervisor.stdout, on_output)
        self._stderr = self._open_output_pipe(OutputStream.STDERR, supervisor.stderr, on_output)
        supervisor.control.setblocking(False)
        self._register(supervisor.control.fileno(), self._handle_supervisor_message)

    def poll_once(self, pending: _PendingCommands) -> None:
        """Do what is to be done now.

        Pass on wishes, then wait for the next thing to happen, and take it in.
        """
        self._send_commands(pending)
        for descriptor, _ in self._poll.poll(self._wait_ms()):
            if descriptor in self._handlers and not self._handlers[descriptor]():
                self._poll.unregister(descriptor)
                del self._handlers[descriptor]

        if time.monotonic() > self._give_up_at_s:
            self._notify_signals("SIGKILL")
            self._supervisor.process.kill()
            self.is_running = False

    def build_outcome(self, duration_s: float) -> JobOutcome:
        self.end_supervisor()
        report = self._report
        return JobOutcome(
            exit_code=report.exit_code,
            signal=report.signal,
            sigterm_sent=report.sigterm_sent,
            timed_out=report.timed_out,
            supervisor_lost=not report.has_ended,
            stdout=self._stdout.get_captured(),
            stderr=self._stderr.get_captured(),
            duration_s=duration_s,
            survivors_killed=report.survivors_killed + self._orphans_killed,
            survivors_left=report.survivors_left,
            stop_requested=self._stops_sent > 0,
            exceeded_limit=self._request.limits.describe_limit(report.exceeded_limit),
            listener_failed=self._stdout.listener_failed or self._stderr.listener_failed,
        )

    def end_supervisor(self) -> None:
        """End the warden, and through it everything else.

        Closing its socket is enough, even for a hasty exit.
        """
        if self._ended:
            return

        self._supervisor.control.close()
        if not wait_for_exit(self._supervisor.process, _SUPERVISOR_TIMEOUT_S):
            self._supervisor.process.kill()
            self._supervisor.process.wait()
        if self._request.level is SandboxLevel.NONE or not self._report.has_ended:
            self._orphans_killed = orphans.kill_tagged_processes(self._request.tag)

        self._ended = True

    def _send_commands(self, pending: _PendingCommands) -> None:
        while self._stops_sent < min(pending.stops, len(_STOP_COMMANDS)):
            # It has just ended by itself
            with suppress(OSError):
                self._supervisor.control.send(_STOP_COMMANDS[self._stops_sent])

            self._stops_sent += 1
            self._give_up_at_s = min(
                self._give_up_at_s, time.monotonic() + self._request.grace_s + _SUPERVISOR_TIMEOUT_S
            )

        for data in pending.data:
            self._stdin.queue_data(data)

        if pending.close_stdin:
            self._stdin.close_when_empty()

        self._register_stdin()

    def _register_stdin(self) -> None:
        """Wait for room in the pipe only while there is something to put into it."""
        descriptor = self._stdin.descriptor
        if descriptor is not None and self._stdin.has_pending and descriptor not in self._handlers:
            self._register(descriptor, self._stdin.flush, select.POLLOUT)

    def _handle_supervisor_message(self) -> bool:
        """Take in what the warden reports; its end without a report is a fact too."""
        try:
            said, descriptors, _, _ = socket.recv_fds(self._supervisor.control, 4096, 1)
        except OSError:
            said = b""
            descriptors = []

        for descriptor in descriptors:
            self._serve_proxy(socket.socket(fileno=descriptor))

        heard = len(self._report.signals)
        self._report.feed(said)
        self._notify_signals(*self._report.signals[heard:])

        if not said or self._report.has_ended:
            self._stdout.drain()
            self._stderr.drain()
            self._report.raise_if_not_started(self._request, self._stderr.get_captured().text)
            self.is_running = False

        return self.is_running

    def _serve_proxy(self, listener: socket.socket) -> None:
        """Let the job's way out answer in the network of the job."""
        way_out = self._request.egress_proxy
        if way_out is None:
            listener.close()
        else:
            way_out.serve(listener)

    def _notify_signals(self, *names: str) -> None:
        for name in names:
            if self._on_signal is not None:
                self._on_signal(name)

    def _wait_ms(self) -> int:
        return max(1, min(int((self._give_up_at_s - time.monotonic()) * 1000) + 1, 3_600_000))

    def _register(
        self, descriptor: int, handler: Callable[[], bool], event: int = select.POLLIN
    ) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, event)

    def _open_wake_pipe(self) -> int:
        woken, wake = os.pipe()
        for descriptor in (woken, wake):
            self._stack.callback(os.close, descriptor)
            os.set_blocking(descriptor, False)
        self._register(woken, lambda: bool(os.read(woken, 4096)))
        return wake

    def _open_input_pipe(self) -> InputPipe:
        beginning = iterate_chunks(self._request.stdin)
        self._stack.callback(beginning.close)
        outbox = InputPipe(self._supervisor.stdin, beginning)
        self._stack.callback(outbox.close)
        return outbox

    def _open_output_pipe(
        self, stream: OutputStream, descriptor: int, on_output: OnOutput | None
    ) -> OutputPipe:
        if stream is OutputStream.STDOUT:
            path = self._request.stdout_log
        else:
            path = self._request.stderr_log

        log = self._stack.enter_context(BoundedLog(path, self._request.max_log_bytes))
        if on_output is None:
            hand_on = None
        else:
            hand_on = lambda chunk: on_output(stream, chunk)  # noqa: E731

        inbox = OutputPipe(
            descriptor, self._request.max_kept_bytes, log, hand_on, self._request.secrets
        )
        self._register(descriptor, inbox.read_available)

        return inbox


class StopEvent(Event):
    """Set once, from any thread, but not in a handler of signals: those must not wait for a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs_lock = Lock()
        self._jobs: list[SandboxedJob] = []

    def set(self) -> None:
        super().set()
        with self._jobs_lock:
            for job in self._jobs:
                _kill_job(job)

    def run_job(self, job: SandboxedJob) -> JobOutcome:
        """Run a program to its end.

        One that was ended by the wish has no outcome, but raises Interrupted.
        """
        with self._jobs_lock:
            self._jobs.append(job)
            if self.is_set():
                _kill_job(job)

        try:
            outcome = job.run()
        finally:
            with self._jobs_lock:
                self._jobs.remove(job)

        if self.is_set():
            raise Interrupted

        return outcome


def _kill_job(job: SandboxedJob) -> None:
    for _ in range(2):
        job.stop()
