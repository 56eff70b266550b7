"""A forge is away at times, and people take theirs: look again, less and less often."""

from __future__ import annotations

from typing import Generic, TypeVar

from phasegate.engine.drive.loop import UnitLoop
from phasegate.engine.journal.unit_journal import WorkJournal
from phasegate.engine.project.project import Project
from phasegate.errors import TryLater

_SLOWEST = 10  # times the first wait
S = TypeVar("S")
E = TypeVar("E")


class Patience(Generic[S, E]):
    """Looks at a forge for one unit of work."""

    def __init__(self, project: Project, journal: WorkJournal[S, E], loop: UnitLoop[S, E], look_once: bool) -> None:
        self._project, self._journal, self._loop, self._look_once = project, journal, loop, look_once
        self._quiet = 0  # looks that found nothing, one after the other
        self._wait_s = 0.0

    def look(self) -> bool:
        """One look; whether it found something to do."""
        self._wait_s = 0.0
        try:
            if self._loop.look():
                self._quiet = 0
                return True
        except TryLater as error:
            self._wait_s = error.wait_s
            self._journal.tell(f"{error.message}; it is tried again")
            if self._look_once:
                raise
        return False

    def wait(self) -> bool:
        """Until the next look; False where one was asked for."""
        if self._look_once:
            return False
        poll_s = self._project.config.forge.poll_s
        self._project.stop.wait(max(self._wait_s, min(poll_s * 1.5**self._quiet, poll_s * _SLOWEST)))
        self._quiet += 1
        return True
