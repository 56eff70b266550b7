"""Poll a forge with exponential back-off."""

from __future__ import annotations

from typing import Generic, TypeVar

from phasegate.engine.drive.step_runner import StepRunner
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.engine.project.project import Project
from phasegate.errors import TemporarilyUnavailable

# Multiple of the first wait
_MAX_BACKOFF_FACTOR = 10
S = TypeVar("S")
E = TypeVar("E")


class ForgePoller(Generic[S, E]):
    """Polls a forge for one unit of work."""

    def __init__(
        self, project: Project, journal: UnitJournal[S, E], loop: StepRunner[S, E], poll_once: bool
    ) -> None:
        self._project = project
        self._journal = journal
        self._loop = loop
        self._poll_once = poll_once
        # Consecutive polls without progress
        self._idle_polls = 0
        self._retry_after_s = 0.0

    def poll(self) -> bool:
        """Poll the forge once. Return True if there was progress."""
        self._retry_after_s = 0.0

        try:
            if self._loop.poll():
                self._idle_polls = 0
                return True
        except TemporarilyUnavailable as error:
            self._retry_after_s = error.retry_after_s
            self._journal.notify(f"{error.message}; retrying")
            if self._poll_once:
                raise

        return False

    def wait_for_next_poll(self) -> bool:
        """Wait until the next poll is due. Return False if only one poll was requested."""
        if self._poll_once:
            return False

        poll_s = self._project.config.forge.poll_interval_s
        backoff_s = poll_s * min(1.5**self._idle_polls, _MAX_BACKOFF_FACTOR)
        self._project.stop.wait(max(self._retry_after_s, backoff_s))
        self._idle_polls += 1
        return True
