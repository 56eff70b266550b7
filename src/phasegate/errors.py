"""Errors that users see, grouped by who has to act: user, machine, or another process."""

from __future__ import annotations


class PhasegateError(Exception):
    """An error that is shown without a traceback: what happened, where, and what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(PhasegateError):
    """The user must act: an argument, a file or a name is wrong."""

    exit_code = 2


class EnvironmentUnavailable(PhasegateError):
    """The machine must change: a program is missing or too old."""

    exit_code = 3


class TemporarilyUnavailable(EnvironmentUnavailable):
    """A service is unreachable, slow, or asks to wait; a later attempt may succeed.

    `retry_after_s`: the wait that the service asked for, 0 if it named none.
    """

    def __init__(self, message: str, hint: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint or "try again later: phasegate run")
        self.retry_after_s = retry_after_s


class StateConflict(PhasegateError):
    """Another process is active, the state has changed, or the store is damaged."""

    exit_code = 4


class AlreadyRunning(StateConflict):
    """Another process runs this feature."""


class BranchUpdateBlocked(StateConflict):
    """A branch cannot be updated: it is checked out with changes that would be lost."""


class MovedOn(StateConflict):
    """Another process has advanced this feature in the meantime."""


class GivenAway(StateConflict):
    """Another machine owns the feature now; this one must not continue it."""


class DivergedHistory(StateConflict):
    """The stored history does not continue the known one.

    Nothing is overwritten or appended.
    """


class Interrupted(Exception):
    """The run was asked to stop. Not an error: the driver turns it into a result."""


class TemplateNotFound(ConfigError):
    """Neither the agent's template nor the BASE template of a phase exists."""


class TemplateRefused(TemplateNotFound):
    """A template exists but must not be read: a link, pipe or folder, too large, or not UTF-8."""


class UnreadableFile(ConfigError):
    """A named file cannot be read, or is not a regular file.

    `reason` is the cause without the name of the file.
    """

    def __init__(self, message: str, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason


class MalformedPrompt(ConfigError):
    """The data is not a valid prompt, as XML or JSON."""


class PromptTooLarge(ConfigError):
    """The required parts of a prompt exceed its budget."""


class MissingReviewMarker(PhasegateError):
    """An answer that needs a verdict has none. It never counts as a pass."""
