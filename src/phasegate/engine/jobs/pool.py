"""Agents at work side by side.

Each job in a thread of its own, its end handed to the one thread that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue
from threading import Lock, Thread
from typing import NamedTuple, Self

from phasegate.engine.jobs.assignment import JobEnd
from phasegate.sandbox.job import SandboxedJob

RegisterJob = Callable[[SandboxedJob], None]
JobFunction = Callable[[RegisterJob], JobEnd]


class JobResult(NamedTuple):
    """How a job came back: its end, or the reason why it could not be run."""

    job: str
    end: JobEnd | BaseException


class JobPool:
    """Jobs that run at once. Leaving it ends all that still runs, with every process of theirs."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: dict[str, Thread] = {}
        self._sandboxed_jobs: list[SandboxedJob] = []
        self._stop_level = 0
        self._results: Queue[JobResult] = Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raise_stop_level(2)
        for thread in self._running.values():
            thread.join()

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def start_job(self, job: str, work: JobFunction) -> None:
        """Run a job. `work` announces its cage before it starts it."""
        thread = Thread(target=self._run_job, args=(job, work), name=f"job {job}", daemon=True)
        self._running[job] = thread
        thread.start()

    def wait_for_result(self, timeout_s: float) -> JobResult | None:
        """The next job that has ended; None if none did in that time."""
        with suppress(Empty):
            came = self._results.get(timeout=max(timeout_s, 0.001))
            self._running.pop(came.job).join()
            return came
        return None

    def stop_all(self) -> None:
        """Ask every job to end, now and by itself; what does not is killed after the grace period."""
        self._raise_stop_level(1)

    def _raise_stop_level(self, level: int) -> None:
        with self._lock:
            for cage in self._sandboxed_jobs:
                for _ in range(level - self._stop_level):
                    cage.stop()
            self._stop_level = max(level, self._stop_level)

    def _register_job(self, job: SandboxedJob) -> None:
        with self._lock:
            self._sandboxed_jobs.append(job)
            for _ in range(self._stop_level):
                job.stop()

    def _run_job(self, job: str, work: JobFunction) -> None:
        try:
            self._results.put(JobResult(job, work(self._register_job)))
        except BaseException as error:
            # The thread that waits raises it
            self._results.put(JobResult(job, error))
