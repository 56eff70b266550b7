"""Run one sandboxed program from start to end, limited in time and memory, leaving no processes.

`SandboxedJob.run` blocks. It returns when the program ends, not when its output does, so a daemon
that keeps the pipe open delays nothing. Call it in the thread that should wait: several threads can
each run one job, and `stop`, `send` and `close_stdin` may be called from any thread. The kernel
ends a sandbox together with the thread that created it.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
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
    """The state of a job as reported by its supervisor, one line per fact."""

    def __init__(self) -> None:
        self._partial_line = b""
        self.has_started = False
        self._failure = ""
        # names of the signals sent to the program
        self.signals: list[str] = []
        self.has_ended = False
        self.sigterm_sent = False
        self.timed_out = False
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

        if not self.has_started:
            why = stderr.strip() or "it exited without an error message"
            raise EnvironmentUnavailable(
                f"could not create a sandbox at level {request.level}: {why}",
                "run `phasegate agents` to see which levels work here",
            )

    def _apply_fact(self, fact: str, details: str) -> None:
        """Apply one line of the supervisor's report."""
        if fact == "started":
            self.has_started = True
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
        """Store the exit status and the counts of surviving processes."""
        status, killed, left, timed_out, sigterm_sent = (int(number) for number in details.split())
        self.has_ended = True
        self.survivors_killed = killed
        self.survivors_left = left
        self.timed_out = bool(timed_out)
        self.sigterm_sent = bool(sigterm_sent)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            self.exit_code = code
        else:
            self.signal = -code


def _explain_start_failure(request: JobRequest, failure: str) -> EnvironmentUnavailable:
    """Create the error for a program that could not be started."""
    step, number, text = failure.split(" ", 2)
    program = request.argv[0]

    if step != "start":
        return EnvironmentUnavailable(
            f"could not start {program}: {step}: {text}",
            "run `phasegate agents` to see what works on this machine",
        )

    hints = {
        errno.ENOENT: "the program, or the interpreter in its first line, does not exist "
        "(or is not visible in the sandbox)",
        errno.EACCES: "it is not executable: chmod +x",
        errno.ENOEXEC: "it is neither a binary for this machine nor a script that begins with #!",
        errno.E2BIG: "its arguments are too long: pass text on standard input or in a file",
    }
    return EnvironmentUnavailable(
        f"could not start {program}: {text}", hints.get(int(number), "check the command")
    )


OnOutput = Callable[[OutputStream, bytes], None]
OnSignal = Callable[[str], None]
_STOP_COMMANDS = (STOP, KILL)
# The supervisor gives up on a process after 5 s; after this time we give up on the supervisor.
_SUPERVISOR_TIMEOUT_S = 8.0


class _PendingCommands(NamedTuple):
    """Requests of other threads to a running job."""

    stops: int
    data: list[bytes]
    close_stdin: bool


class SandboxedJob:
    """A job that runs once; other threads can send input and stop it while `run` blocks."""

    def __init__(self, request: JobRequest) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._pending = _PendingCommands(0, [], not request.keep_stdin_open)
        self._wake_fd: int | None = None

    def stop(self) -> None:
        """Stop the program: SIGTERM, then SIGKILL after the grace period.

        A second call kills it at once.
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
        """Run the program to its end; raise EnvironmentUnavailable if it could not be started.

        `on_output` is called in this thread with each chunk of output. The program waits while it
        runs, so keep it short. `on_signal` is called when SIGTERM or SIGKILL is sent.
        """
        started_s = time.monotonic()
        with ExitStack() as stack:
            loop = _JobLoop(
                self._request,
                start_supervisor(self._request, started_s),
                on_output,
                stack,
                on_signal,
            )

            self._set_wake_fd(loop.wake_fd)
            stack.callback(self._set_wake_fd, None)
            while loop.is_running:
                loop.poll_once(self._take_pending())

            return loop.build_outcome(time.monotonic() - started_s)

    def _take_pending(self) -> _PendingCommands:
        with self._lock:
            pending = self._pending
            self._pending = pending._replace(data=[])
            return pending

    def _set_wake_fd(self, descriptor: int | None) -> None:
        with self._lock:
            self._wake_fd = descriptor

    def _wake_up(self) -> None:
        if self._wake_fd is not None:
            with suppress(BlockingIOError):
                os.write(self._wake_fd, b"!")


class _JobLoop:
    """The event loop of a job: transfers its input and output and reads its supervisor's reports.

    Closing `stack` ends the job, even when an exception closes it.
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
        """Send the pending commands, then wait for the next event and handle it."""
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
        """End the supervisor and build the outcome of the job."""
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
        """End the supervisor, which ends all processes of the job.

        Closing its socket is enough, even if this process exits in a hurry.
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
        """Send requested stops to the supervisor and queued input to the job."""
        while self._stops_sent < min(pending.stops, len(_STOP_COMMANDS)):
            # The send fails if the supervisor has just exited.
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
        """Poll the input pipe for writing, but only while there is data to write."""
        descriptor = self._stdin.descriptor
        if descriptor is not None and self._stdin.has_pending and descriptor not in self._handlers:
            self._register(descriptor, self._stdin.flush, select.POLLOUT)

    def _handle_supervisor_message(self) -> bool:
        """Apply the supervisor's next report; return False once the job has ended.

        A closed socket counts as an end without a report.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(self._supervisor.control, 4096, 1)
        except OSError:
            data = b""
            descriptors = []

        for descriptor in descriptors:
            self._serve_proxy(socket.socket(fileno=descriptor))

        already_notified = len(self._report.signals)
        self._report.feed(data)
        self._notify_signals(*self._report.signals[already_notified:])

        if not data or self._report.has_ended:
            self._stdout.drain()
            self._stderr.drain()
            self._raise_if_not_started()
            self.is_running = False

        return self.is_running

    def _raise_if_not_started(self) -> None:
        # Ctrl-C reaches the child between fork and setsid, so before the supervisor has started.
        if not self._report.has_started:
            wait_for_exit(self._supervisor.process, _SUPERVISOR_TIMEOUT_S)
            if self._supervisor.process.returncode == -signal.SIGINT:
                raise Interrupted

        self._report.raise_if_not_started(self._request, self._stderr.get_captured().text)

    def _serve_proxy(self, listener: socket.socket) -> None:
        """Let the egress proxy serve the listening socket in the job's network."""
        proxy = self._request.egress_proxy
        if proxy is None:
            listener.close()
        else:
            proxy.serve(listener)

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
        readable, writable = os.pipe()
        for descriptor in (readable, writable):
            self._stack.callback(os.close, descriptor)
            os.set_blocking(descriptor, False)
        self._register(readable, lambda: bool(os.read(readable, 4096)))
        return writable

    def _open_input_pipe(self) -> InputPipe:
        initial_chunks = iterate_chunks(self._request.stdin)
        self._stack.callback(initial_chunks.close)
        pipe = InputPipe(self._supervisor.stdin, initial_chunks)
        self._stack.callback(pipe.close)
        return pipe

    def _open_output_pipe(
        self, stream: OutputStream, descriptor: int, on_output: OnOutput | None
    ) -> OutputPipe:
        """Register a pipe that logs and keeps one output stream."""
        if stream is OutputStream.STDOUT:
            path = self._request.stdout_log
        else:
            path = self._request.stderr_log

        log = self._stack.enter_context(BoundedLog(path, self._request.max_log_bytes))
        on_chunk = partial(on_output, stream) if on_output else None
        pipe = OutputPipe(
            descriptor, self._request.max_kept_bytes, log, on_chunk, self._request.secrets
        )
        self._register(descriptor, pipe.read_available)

        return pipe


class StopEvent(Event):
    """An event that kills the running jobs when it is set.

    It can be set from any thread, but not in a signal handler, which must not wait for a lock.
    """

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
        """Run a job to its end; raise Interrupted if this event stopped it."""
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
