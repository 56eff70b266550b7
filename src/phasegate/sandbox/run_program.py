"""Run a short trusted program such as git in one call, without polling for its end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable


def open_pidfd(pid: int) -> int | None:
    """Open a descriptor that becomes readable when the process ends; None if not supported."""
    if sys.platform != "linux":
        return None

    try:
        return os.pidfd_open(pid)
    except OSError:
        # Kernels before 5.3 do not have it.
        return None


def wait_for_exit(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait for the process to end; return True if it ended in time.

    `Popen.wait` with a time-out polls with sleeps, which delays a short job by up to 50 ms.
    """
    if process.poll() is not None:
        return True

    pinned = open_pidfd(process.pid)
    if pinned is not None:
        try:
            poll = select.poll()
            poll.register(pinned, select.POLLIN)
            poll.poll(max(0, int(timeout_s * 1000)))
        finally:
            os.close(pinned)

        return process.poll() is not None

    try:
        process.wait(max(0.0, timeout_s))
    except subprocess.TimeoutExpired:
        return False

    return True


MIB = 1024**2
_CHUNK_BYTES = 128 * 1024
_TERMINATE_GRACE_S = 2.0


class ProgramResult(NamedTuple):
    """How a program ended. Exactly one of `exit_code` and `signal` is set."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    duration_s: float
    # the output was longer than the limit; the rest was discarded
    truncated: bool
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.truncated


def find_program(name: str, *, path: str | None = None, cwd: Path | None = None) -> str | None:
    """Return the absolute path of a program, or None if it does not exist.

    A name with a slash is resolved against `cwd`, never through PATH.
    """
    if os.sep in name:
        candidate = (cwd or Path.cwd()) / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
        return None

    return shutil.which(name, path=path)


def run_program(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout_s: float = 60.0,
    max_output_bytes: int = 256 * MIB,
    stdout_fd: int | None = None,
) -> ProgramResult:
    """Run a program to its end; raise EnvironmentUnavailable when it cannot be started.

    `stdout_fd` is a descriptor that receives its output instead of the result. On a time-out or an
    interrupt it gets SIGTERM first, so that git removes its lock files.
    """
    arguments = (argv, cwd, env, stdin, timeout_s, max_output_bytes, stdout_fd)
    result = _run_once(*arguments)

    # Ctrl-C reaches the child between fork and setpgid, so before the program itself has started.
    if result.signal == signal.SIGINT:
        result = _run_once(*arguments)

    return result


def _run_once(
    argv: Sequence[str | Path],
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    max_output_bytes: int,
    stdout_fd: int | None,
) -> ProgramResult:
    """Run a program to its end or time limit, and return its output."""
    started_s = time.monotonic()
    process = _start_process(argv, cwd, env, bool(stdin), stdout_fd)
    exchange = _PipeExchange(process, stdin, max_output_bytes)

    try:
        timed_out = not exchange.transfer_until_exit(started_s + timeout_s)
        if timed_out:
            _terminate(process)
            exchange.drain()

        code = process.wait()
    except BaseException:
        _terminate(process)
        raise
    finally:
        exchange.close()

    return ProgramResult(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=exchange.stdout,
        stderr=exchange.stderr,
        duration_s=time.monotonic() - started_s,
        truncated=exchange.truncated,
        timed_out=timed_out,
    )


def _start_process(
    argv: Sequence[str | Path],
    cwd: Path,
    env: Mapping[str, str],
    has_stdin: bool,
    stdout_fd: int | None,
) -> subprocess.Popen[bytes]:
    """Start the program by vfork, with all other descriptors closed.

    It gets its own process group, so that Ctrl-C reaches only us.
    """
    try:
        return subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout_fd is None else stdout_fd,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            process_group=0,
        )
    except FileNotFoundError as error:
        missing = argv[0] if cwd.is_dir() else cwd
        raise EnvironmentUnavailable(
            f"{missing} was not found", f"install {argv[0]}, or add it to PATH"
        ) from error
    except OSError as error:
        raise EnvironmentUnavailable(
            f"could not start {argv[0]}: {error.strerror}", "check the installation"
        ) from error


class _PipeExchange:
    """The transfer of a program's input and output."""

    def __init__(
        self, process: subprocess.Popen[bytes], stdin: bytes, max_output_bytes: int
    ) -> None:
        self._process = process
        self._input = memoryview(stdin)
        self._bytes_left = max_output_bytes
        self._parts: dict[int, list[bytes]] = {}
        self._poll = select.poll()
        self._open_count = 0
        self.truncated = False
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                self._parts[pipe.fileno()] = []
                self._register(pipe.fileno(), select.POLLIN)

        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._register(process.stdin.fileno(), select.POLLOUT)

        self._pidfd = open_pidfd(process.pid)
        if self._pidfd is not None:
            self._poll.register(self._pidfd, select.POLLIN)

    @property
    def stdout(self) -> bytes:
        if self._process.stdout is not None:
            return self._join_output(0)
        return b""

    @property
    def stderr(self) -> bytes:
        return self._join_output(-1)

    def transfer_until_exit(self, deadline_s: float) -> bool:
        """Transfer data until the program has ended; return False on a time-out.

        The end of its output does not count: a helper process may keep the pipes open.
        """
        while self._open_count or self._pidfd is not None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False

            ready = self._poll.poll(int(left_s * 1000) + 1)
            for descriptor, _ in ready:
                self._handle_ready(descriptor)

            if any(descriptor == self._pidfd for descriptor, _ in ready):
                self.drain()
                return True

        return wait_for_exit(self._process, deadline_s - time.monotonic())

    def drain(self) -> None:
        """Read the data that is in the pipes now, without waiting."""
        for descriptor in self._parts:
            os.set_blocking(descriptor, False)
            with suppress(BlockingIOError):
                while self._bytes_left >= 0 and self._read(descriptor):
                    pass

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _register(self, descriptor: int, event: int) -> None:
        self._poll.register(descriptor, event)
        self._open_count += 1

    def _handle_ready(self, descriptor: int) -> None:
        """Read or write a ready pipe; unregister it when it is done."""
        if descriptor == self._pidfd:
            return

        if descriptor in self._parts:
            more_expected = self._read(descriptor)
        else:
            more_expected = self._write()

        if not more_expected:
            self._poll.unregister(descriptor)
            self._open_count -= 1

    def _read(self, descriptor: int) -> bool:
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if self._bytes_left > 0:
            self._parts[descriptor].append(chunk[: self._bytes_left])
        self.truncated = self.truncated or len(chunk) > self._bytes_left
        self._bytes_left -= len(chunk)
        return bool(chunk)

    def _write(self) -> bool:
        """Write input; return whether more remains. Close the pipe after the last byte."""
        assert self._process.stdin is not None
        try:
            self._input = self._input[os.write(self._process.stdin.fileno(), self._input[:MIB]) :]
        except BlockingIOError:
            return True
        except OSError:
            self._input = self._input[:0]

        if not self._input:
            self._process.stdin.close()
        return bool(self._input)

    def _join_output(self, which: int) -> bytes:
        return b"".join([*self._parts.values()][which])


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process group, then SIGKILL after 2 s.

    The leader has not been reaped yet, so its pid cannot have been reused.
    """
    if process.poll() is not None:
        return

    os.killpg(process.pid, signal.SIGTERM)
    if not wait_for_exit(process, _TERMINATE_GRACE_S):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
