"""A forge is away at times, and people take theirs: look again, less and less often."""

from __future__ import annotations

from typing import Generic, TypeVar

from phasegate.engine.drive.loop import UnitLoop
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.engine.project.project import Project
from phasegate.errors import TemporarilyUnavailable

# Times the first wait
_MAX_BACKOFF_FACTOR = 10
S = TypeVar("S")
E = TypeVar("E")


class ForgePoller(Generic[S, E]):
    """Looks at a forge for one unit of work."""

    def __init__(
        self, project: Project, journal: UnitJournal[S, E], loop: UnitLoop[S, E], poll_once: bool
    ) -> None:
        self._project = project
        self._journal = journal
        self._loop = loop
        self._poll_once = poll_once
        # Looks that found nothing, one after the other
        self._idle_polls = 0
        self._retry_after_s = 0.0

    def poll(self) -> bool:
        """One look; whether it found something to do."""
        self._retry_after_s = 0.0

        try:
            if self._loop.poll():
                self._idle_polls = 0
                return True
        except TemporarilyUnavailable as error:
            self._retry_after_s = error.retry_after_s
            self._journal.notify(f"{error.message}; it is tried again")
            if self._poll_once:
                raise

        return False

    def wait_for_next_poll(self) -> bool:
        """Until the next look; False where one was asked for."""
        if self._poll_once:
            return False

        poll_s = self._project.config.forge.poll_interval_s
        self._project.stop.wait(
            max(
                self._retry_after_s,
                min(poll_s * 1.5**self._idle_polls, poll_s * _MAX_BACKOFF_FACTOR),
            )
        )

        self._idle_polls += 1

        return True
