"""The last action of an agent and its token count, as one short line."""

from __future__ import annotations

from typing import NamedTuple

MAX_LINE_CHARS = 80
_MAX_MESSAGE_CHARS = 400


class Activity(NamedTuple):
    """Last file, command or message of a job, and the tokens that it has reported so far."""

    last: str = ""
    tokens: int = 0
    # End of the current message; some programs send it in pieces
    message: str = ""

    @property
    def line(self) -> str:
        """The last action and the token count on one line; empty before the first output."""
        if self.tokens:
            used = f"{format_count(self.tokens)} tokens"
        else:
            used = ""
        return "  ".join(part for part in (self.last, used) if part)


class RunningCommand(NamedTuple):
    """A running check command, with its start on the monotonic clock."""

    purpose: str
    started_at_s: float

    def line(self, now_s: float) -> str:
        """Return a line such as `setup running, 0:42`."""
        elapsed_s = max(0, int(now_s - self.started_at_s))
        return f"{self.purpose} running, {elapsed_s // 60}:{elapsed_s % 60:02}"


def record_action(before: Activity, action: str) -> Activity:
    """Record a changed file, a command or another tool call."""
    return before._replace(last=_shorten_line(action), message="")


def record_message(before: Activity, text: str) -> Activity:
    """Record a message, or a piece of one. Its last line is shown, unless it is a code fence."""
    message = f"{before.message}{text}"[-_MAX_MESSAGE_CHARS:]
    lines = [
        line
        for line in message.splitlines()
        if line.strip() and not line.lstrip().startswith("```")
    ]
    last = _shorten_line(lines[-1]) if lines else before.last
    return before._replace(last=last, message=message)


def record_tokens(before: Activity, tokens: int) -> Activity:
    """Record the total number of tokens used by the job so far."""
    return before._replace(tokens=tokens)


def format_count(number: int) -> str:
    """Format a count with a unit: 950, 12.3k, 4.1M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


def _shorten_line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[: MAX_LINE_CHARS - 3]}..."
