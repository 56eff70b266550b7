"""What an agent did last and has used so far, in one short line for people who watch."""

from __future__ import annotations

from typing import NamedTuple

MAX_LINE_CHARS = 80
_MAX_MESSAGE_CHARS = 400


class Activity(NamedTuple):
    """The last file, command or message of a run, and the tokens that it reports so far."""

    last: str = ""
    tokens: int = 0
    # The end of the message in hand: some programs send it in pieces
    message: str = ""

    @property
    def line(self) -> str:
        """Both as one line; empty before the first sign."""
        if self.tokens:
            used = f"{format_count(self.tokens)} tokens"
        else:
            used = ""
        return "  ".join(part for part in (self.last, used) if part)


class RunningCommand(NamedTuple):
    """A command of our checks, at work since a moment of the monotonic clock."""

    purpose: str
    started_at_s: float

    def line(self, now_s: float) -> str:
        """`setup running, 0:42`."""
        passed = max(0, int(now_s - self.started_at_s))
        return f"{self.purpose} running, {passed // 60}:{passed % 60:02}"


def record_action(before: Activity, action: str) -> Activity:
    """A file was changed, a command or another tool was called."""
    return before._replace(last=_shorten_line(action), message="")


def record_message(before: Activity, text: str) -> Activity:
    """The agent said something, or a piece of it.

    Its last line is shown, but not the fence of a block.
    """
    message = f"{before.message}{text}"[-_MAX_MESSAGE_CHARS:]
    lines = [
        line
        for line in message.splitlines()
        if line.strip() and not line.lstrip().startswith("```")
    ]
    return before._replace(last=_shorten_line(lines[-1]) if lines else before.last, message=message)


def record_tokens(before: Activity, tokens: int) -> Activity:
    """All the tokens that the run has used so far."""
    return before._replace(tokens=tokens)


def format_count(number: int) -> str:
    """A count as people read it at a glance: 950, 12.3k, 4.1M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


def _shorten_line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[: MAX_LINE_CHARS - 3]}..."
