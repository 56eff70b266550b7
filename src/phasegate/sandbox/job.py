"""One caged program from its start to its end: bounded in time and memory, and nothing of it left behind.

`Job.run` blocks, and ends when the program ends, not when its output does: a daemon that keeps the pipe open holds up
nobody. Run it in the thread that should wait: several threads can each run one, and `stop`, `send` and `close_stdin`
may be called from any. The kernel ends a cage together with the thread that made it.
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
from phasegate.sandbox.bounded_output import Log, Stream
from phasegate.sandbox.launch import Launched, launch
from phasegate.sandbox.pipes import Inbox, Outbox, pieces
from phasegate.sandbox.request import JobOutcome, Level, Request
from phasegate.sandbox.run_program import ends_within
from phasegate.sandbox.supervisor import END, STOP


class _WardenReport:
    """The facts so far, line by line as they come; before the first one nothing has started."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_started = False
        self._failure = ""
        self.signals: list[str] = []  # those that were sent to the program
        self.has_ended = False
        self.told_to_stop = False
        self.timed_out = False
        self.over = ""  # the limit that it came to
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.survivors_killed = 0
        self.survivors_left = 0

    def take(self, said: bytes) -> None:
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            fact, _, details = line.decode("utf-8", "replace").partition(" ")
            self._note(fact, details)

    def raise_if_not_started(self, request: Request, stderr: str) -> None:
        if self._failure:
            raise _why_not_started(request, self._failure)
        if not self._has_started:
            why = stderr.strip() or "it ended without a word"
            raise EnvironmentUnavailable(
                f"The cage of level {request.level} could not be made: {why}",
                "`phasegate agents` shows which levels hold here",
            )

    def _note(self, fact: str, details: str) -> None:
        if fact == "started":
            self._has_started = True
        elif fact == "failed":
            self._failure = details
        elif fact == "stopping":
            self.told_to_stop = True
            self.signals.append("SIGTERM")
        elif fact == "killing":
            self.signals.append("SIGKILL")
        elif fact == "over":
            self.over = details
        elif fact == "ended":
            self._note_end(details)

    def _note_end(self, details: str) -> None:
        status, killed, left, timed_out, told_to_stop = (int(number) for number in details.split())
        self.has_ended = True
        self.survivors_killed, self.survivors_left = killed, left
        self.timed_out, self.told_to_stop = bool(timed_out), bool(told_to_stop)
        code = os.waitstatus_to_exitcode(status)
        self.exit_code, self.signal = (code, None) if code >= 0 else (None, -code)


def _why_not_started(request: Request, failure: str) -> EnvironmentUnavailable:
    step, number, text = failure.split(" ", 2)
    program = request.argv[0]
    if step != "start":
        return EnvironmentUnavailable(
            f"{program} could not be started: {step}: {text}", "`phasegate agents` shows what holds here"
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


OnOutput = Callable[[Stream, bytes], None]
OnSignal = Callable[[str], None]
_STAGES = (STOP, END)
_BACKSTOP_S = 8.0  # the warden gives up on a process after 5 s; after this we give up on the warden


class _Wishes(NamedTuple):
    """What other threads want of a running job."""

    stops: int
    data: list[bytes]
    close_stdin: bool


class CagedJob:
    """A job that other threads can talk to while `run` runs it. It runs once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._wishes = _Wishes(0, [], not request.keep_stdin_open)
        self._wake: int | None = None

    def stop(self) -> None:
        """Ask the program to end: SIGTERM, and SIGKILL after the grace period; a second call kills at once."""
        with self._lock:
            self._wishes = self._wishes._replace(stops=self._wishes.stops + 1)
            self._wake_up()

    def send(self, data: bytes) -> None:
        """Add to the program's standard input, which must have been kept open."""
        with self._lock:
            if self._wishes.close_stdin:
                raise ValueError("the standard input of this job is closed")
            self._wishes.data.append(data)
            self._wake_up()

    def close_stdin(self) -> None:
        with self._lock:
            self._wishes = self._wishes._replace(close_stdin=True)
            self._wake_up()

    def run(self, on_output: OnOutput | None = None, on_signal: OnSignal | None = None) -> JobOutcome:
        """Run to the end and say how it went; raises EnvironmentUnavailable when it could not be started.

        `on_output` is called here, piece by piece, as output comes. While it works, the program waits: keep it short.
        `on_signal` hears of SIGTERM and SIGKILL when they are sent.
        """
        started_s = time.monotonic()
        with ExitStack() as stack:
            pump = _Pump(self._request, launch(self._request, started_s), on_output, stack, on_signal)
            self._let_wake(pump.wake)
            stack.callback(self._let_wake, None)
            while pump.is_running:
                pump.turn(self._take_wishes())
            return pump.outcome(time.monotonic() - started_s)

    def _take_wishes(self) -> _Wishes:
        with self._lock:
            taken = self._wishes
            self._wishes = taken._replace(data=[])
            return taken

    def _let_wake(self, descriptor: int | None) -> None:
        with self._lock:
            self._wake = descriptor

    def _wake_up(self) -> None:
        if self._wake is not None:
            with suppress(BlockingIOError):
                os.write(self._wake, b"!")


class _Pump:
    """Moves a job's input and output, and hears its warden. Leaving `stack` ends the job, however it is left."""

    def __init__(
        self,
        request: Request,
        launched: Launched,
        on_output: OnOutput | None,
        stack: ExitStack,
        on_signal: OnSignal | None = None,
    ) -> None:
        self._request = request
        self._launched = launched
        self._stack = stack
        stack.callback(self.end)
        if request.way_out is not None:
            stack.callback(request.way_out.close)
        for descriptor in (launched.stdout, launched.stderr):
            stack.callback(os.close, descriptor)
        self._report = _WardenReport()
        self._on_signal = on_signal
        self._give_up_at_s = launched.end_at_s + _BACKSTOP_S
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], bool]] = {}
        self._stops_sent = 0
        self._swept = 0
        self._ended = False
        self.is_running = True
        self.wake = self._open_wake()
        self._outbox = self._open_outbox()
        self._stdout = self._open_inbox(Stream.STDOUT, launched.stdout, on_output)
        self._stderr = self._open_inbox(Stream.STDERR, launched.stderr, on_output)
        launched.control.setblocking(False)
        self._listen(launched.control.fileno(), self._hear)

    def turn(self, wishes: _Wishes) -> None:
        """Do what is to be done now: pass on wishes, then wait for the next thing to happen, and take it in."""
        self._pass_on(wishes)
        for descriptor, _ in self._poll.poll(self._wait_ms()):
            if descriptor in self._handlers and not self._handlers[descriptor]():
                self._poll.unregister(descriptor)
                del self._handlers[descriptor]
        if time.monotonic() > self._give_up_at_s:
            self._tell_signals("SIGKILL")
            self._launched.process.kill()
            self.is_running = False

    def outcome(self, duration_s: float) -> JobOutcome:
        self.end()
        report = self._report
        return JobOutcome(
            exit_code=report.exit_code,
            signal=report.signal,
            told_to_stop=report.told_to_stop,
            timed_out=report.timed_out,
            lost=not report.has_ended,
            stdout=self._stdout.captured(),
            stderr=self._stderr.captured(),
            duration_s=duration_s,
            survivors_killed=report.survivors_killed + self._swept,
            survivors_left=report.survivors_left,
            stopped=self._stops_sent > 0,
            over=self._request.limits.in_words(report.over),
            unheard=self._stdout.unheard or self._stderr.unheard,
        )

    def end(self) -> None:
        """End the warden, and through it everything else. Closing its socket is enough, even for a hasty exit."""
        if self._ended:
            return
        self._launched.control.close()
        if not ends_within(self._launched.process, _BACKSTOP_S):
            self._launched.process.kill()
            self._launched.process.wait()
        if self._request.level is Level.NONE or not self._report.has_ended:
            self._swept = orphans.end_tagged(self._request.tag)
        self._ended = True

    def _pass_on(self, wishes: _Wishes) -> None:
        while self._stops_sent < min(wishes.stops, len(_STAGES)):
            with suppress(OSError):  # it has just ended by itself
                self._launched.control.send(_STAGES[self._stops_sent])
            self._stops_sent += 1
            self._give_up_at_s = min(self._give_up_at_s, time.monotonic() + self._request.grace_s + _BACKSTOP_S)
        for data in wishes.data:
            self._outbox.put(data)
        if wishes.close_stdin:
            self._outbox.close_when_empty()
        self._listen_to_reader()

    def _listen_to_reader(self) -> None:
        """Wait for room in the pipe only while there is something to put into it."""
        descriptor = self._outbox.descriptor
        if descriptor is not None and self._outbox.has_more and descriptor not in self._handlers:
            self._listen(descriptor, self._outbox.flush, select.POLLOUT)

    def _hear(self) -> bool:
        """Take in what the warden reports; its end without a report is a fact too."""
        try:
            said, descriptors, _, _ = socket.recv_fds(self._launched.control, 4096, 1)
        except OSError:
            said, descriptors = b"", []
        for descriptor in descriptors:
            self._let_out(socket.socket(fileno=descriptor))
        heard = len(self._report.signals)
        self._report.take(said)
        self._tell_signals(*self._report.signals[heard:])
        if not said or self._report.has_ended:
            self._stdout.drain()
            self._stderr.drain()
            self._report.raise_if_not_started(self._request, self._stderr.captured().text)
            self.is_running = False
        return self.is_running

    def _let_out(self, listener: socket.socket) -> None:
        """Let the job's way out answer in the network of the job."""
        way_out = self._request.way_out
        if way_out is None:
            listener.close()
        else:
            way_out.serve(listener)

    def _tell_signals(self, *names: str) -> None:
        for name in names:
            if self._on_signal is not None:
                self._on_signal(name)

    def _wait_ms(self) -> int:
        return max(1, min(int((self._give_up_at_s - time.monotonic()) * 1000) + 1, 3_600_000))

    def _listen(self, descriptor: int, handler: Callable[[], bool], event: int = select.POLLIN) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, event)

    def _open_wake(self) -> int:
        woken, wake = os.pipe()
        for descriptor in (woken, wake):
            self._stack.callback(os.close, descriptor)
            os.set_blocking(descriptor, False)
        self._listen(woken, lambda: bool(os.read(woken, 4096)))
        return wake

    def _open_outbox(self) -> Outbox:
        beginning = pieces(self._request.stdin)
        self._stack.callback(beginning.close)
        outbox = Outbox(self._launched.stdin, beginning)
        self._stack.callback(outbox.close)
        return outbox

    def _open_inbox(self, stream: Stream, descriptor: int, on_output: OnOutput | None) -> Inbox:
        path = self._request.stdout_log if stream is Stream.STDOUT else self._request.stderr_log
        log = self._stack.enter_context(Log(path, self._request.log_bytes))
        hand_on = None if on_output is None else (lambda chunk: on_output(stream, chunk))
        inbox = Inbox(descriptor, self._request.keep_bytes, log, hand_on, self._request.secrets)
        self._listen(descriptor, inbox.read)
        return inbox


class Stop(Event):
    """Set once, from any thread, but not in a handler of signals: those must not wait for a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs_lock = Lock()
        self._jobs: list[CagedJob] = []

    def set(self) -> None:
        super().set()
        with self._jobs_lock:
            for job in self._jobs:
                _kill(job)

    def run(self, job: CagedJob) -> JobOutcome:
        """Run a program to its end; one that was ended by the wish has no outcome, but raises Interrupted."""
        with self._jobs_lock:
            self._jobs.append(job)
            if self.is_set():
                _kill(job)
        try:
            outcome = job.run()
        finally:
            with self._jobs_lock:
                self._jobs.remove(job)
        if self.is_set():
            raise Interrupted
        return outcome


def _kill(job: CagedJob) -> None:
    for _ in range(2):
        job.stop()
