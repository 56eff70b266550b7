"""Start programs that outlive this process: own session, no terminal, output to a file."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence


class DetachedProcess:
    """A detached program: it can be polled and terminated, and does not end with this process."""

    def __init__(
        self, argv: Sequence[str], cwd: str, environment: Mapping[str, str], log: str
    ) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(log, flags, 0o600)

        try:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll_exit_status(self) -> int | None:
        """Return the exit status of the process; None while it runs."""
        return self._process.poll()

    def terminate(self, timeout_s: float, number: int = signal.SIGTERM) -> None:
        """Send a signal, then SIGKILL if the process has not ended after `timeout_s`."""
        self._process.send_signal(number)

        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def terminate_process(
    pid: int, is_expected_process: Callable[[], bool], number: int = signal.SIGTERM
) -> bool:
    """Send SIGTERM or another signal to a process; return False if it no longer exists.

    Never signals a later process that reuses the pid.
    """
    if not hasattr(os, "pidfd_open"):
        return is_expected_process() and _try_send(lambda: os.kill(pid, number))

    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False

    try:
        # The pidfd refers to one process: if the check passes now, that process gets the signal.
        return is_expected_process() and _try_send(
            lambda: signal.pidfd_send_signal(descriptor, number)
        )
    finally:
        os.close(descriptor)


def _try_send(send: Callable[[], None]) -> bool:
    try:
        send()
    except ProcessLookupError:
        return False
    return True
