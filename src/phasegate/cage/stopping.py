"""A wish to stop, for a whole run: whoever looks at it stops by itself, and programs that it is told of are ended."""

from __future__ import annotations

from threading import Event, Lock

from phasegate.cage.job import Job
from phasegate.cage.request import Outcome
from phasegate.errors import Interrupted


class Stop(Event):
    """Set once, from any thread, but not in a handler of signals: those must not wait for a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs_lock = Lock()
        self._jobs: list[Job] = []

    def set(self) -> None:
        super().set()
        with self._jobs_lock:
            for job in self._jobs:
                _kill(job)

    def run(self, job: Job) -> Outcome:
        """Run a program to its end; one that was ended by the wish has no outcome, but raises Interrupted."""
        with self._jobs_lock:
            self._jobs.append(job)
            if self.is_set():
                _kill(job)
        try:
            outcome = job.run()
        finally:
            with self._jobs_lock:
                self._jobs.remove(job)
        if self.is_set():
            raise Interrupted
        return outcome


def _kill(job: Job) -> None:
    for _ in range(2):
        job.stop()
