"""Agents at work side by side: each job in a thread of its own, its end handed to the one thread that waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue
from threading import Lock, Thread
from typing import NamedTuple, Self

from phasegate.engine.jobs.assignment import Ended
from phasegate.sandbox.job import CagedJob

Announce = Callable[[CagedJob], None]
Work = Callable[[Announce], Ended]


class Came(NamedTuple):
    """How a job came back: its end, or the reason why it could not be run."""

    job: str
    result: Ended | BaseException


class Crew:
    """Jobs that run at once. Leaving it ends all that still runs, with every process of theirs."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: dict[str, Thread] = {}
        self._cages: list[CagedJob] = []
        self._stops = 0
        self._ends: Queue[Came] = Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ask_to_stop(2)
        for thread in self._running.values():
            thread.join()

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def start(self, job: str, work: Work) -> None:
        """Run a job. `work` announces its cage before it starts it."""
        thread = Thread(target=self._carry_out, args=(job, work), name=f"job {job}", daemon=True)
        self._running[job] = thread
        thread.start()

    def wait(self, timeout_s: float) -> Came | None:
        """The next job that has ended; None if none did in that time."""
        with suppress(Empty):
            came = self._ends.get(timeout=max(timeout_s, 0.001))
            self._running.pop(came.job).join()
            return came
        return None

    def stop(self) -> None:
        """Ask every job to end, now and by itself; what does not is killed after the grace period."""
        self._ask_to_stop(1)

    def _ask_to_stop(self, stops: int) -> None:
        with self._lock:
            for cage in self._cages:
                for _ in range(stops - self._stops):
                    cage.stop()
            self._stops = max(stops, self._stops)

    def _announce(self, cage: CagedJob) -> None:
        with self._lock:
            self._cages.append(cage)
            for _ in range(self._stops):
                cage.stop()

    def _carry_out(self, job: str, work: Work) -> None:
        try:
            self._ends.put(Came(job, work(self._announce)))
        except BaseException as error:  # the thread that waits raises it
            self._ends.put(Came(job, error))
