"""What a warden said about its job."""

from __future__ import annotations

import errno
import os

from phasegate.cage.request import Request
from phasegate.errors import EnvironmentUnavailable


class Report:
    """The facts so far, line by line as they come; before the first one nothing has started."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_started = False
        self._failure = ""
        self.signals: list[str] = []  # those that were sent to the program
        self.has_ended = False
        self.told_to_stop = False
        self.timed_out = False
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
