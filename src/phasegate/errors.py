"""What can go wrong, sorted by who must act."""

from __future__ import annotations


class PhasegateError(Exception):
    """Shown to the person without a traceback: what happened, where, and what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(PhasegateError):
    """The person must act: an argument, a file of theirs, a name."""

    exit_code = 2


class EnvironmentUnavailable(PhasegateError):
    """The machine must change: a program is missing or too old."""

    exit_code = 3


class TemporarilyUnavailable(EnvironmentUnavailable):
    """Something outside is away, slow, or asks us to wait, `wait_s` seconds if it says so.

    Later it may work.
    """

    def __init__(self, message: str, hint: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint or "try again later: phasegate run")
        self.retry_after_s = retry_after_s


class StateConflict(PhasegateError):
    """Somebody else acts, or the state moved on, or the store is damaged."""

    exit_code = 4


class BranchUpdateBlocked(StateConflict):
    """A branch cannot move: a checkout of the person's stands on it, with work that would be lost."""


class MovedOn(StateConflict):
    """Another process has taken a step of this feature in the meantime."""


class GivenAway(StateConflict):
    """Another machine has the feature now: nothing more of it is done here."""


class DivergedHistory(StateConflict):
    """In a place of the record stands what does not follow from it.

    Nothing is written over or behind it.
    """


class Interrupted(Exception):
    """Somebody asked this run to stop. No error: whoever drives the run ends it with a value."""


class TemplateNotFound(ConfigError):
    """Neither the agent's template nor the BASE template of a phase exists."""


class TemplateRefused(TemplateNotFound):
    """A template is there and must not be read: a link, a pipe, a folder, too large, no UTF-8."""


class UnreadableFile(ConfigError):
    """A file that was named cannot be read, or is no regular file.

    `reason` says why without its name.
    """

    def __init__(self, message: str, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason


class MalformedPrompt(ConfigError):
    """Not a prompt of ours, as XML or as JSON."""


class PromptTooLarge(ConfigError):
    """What a prompt cannot do without is larger than its budget."""


class MissingReviewMarker(PhasegateError):
    """An answer that needs a verdict has none. Never a pass."""
