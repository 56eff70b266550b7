"""Run tasks in threads, and return their results to the one thread that waits for them."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Generic, NamedTuple, Self, TypeVar

from phasegate.engine.jobs.job_end import JobEnd
from phasegate.errors import Interrupted
from phasegate.sandbox.job import SandboxedJob

R = TypeVar("R")
RegisterJob = Callable[[SandboxedJob], None]
JobFunction = Callable[[RegisterJob], JobEnd]


class TaskResult(NamedTuple, Generic[R]):
    """The result of a task, or the exception that ended it."""

    name: str
    outcome: R | BaseException


class ThreadPool(Generic[R]):
    """Runs every task in its own daemon thread. One thread starts tasks and waits for them."""

    def __init__(self) -> None:
        self._running: dict[str, Thread] = {}
        self._results: Queue[TaskResult[R]] = Queue()

    @property
    def running(self) -> frozenset[str]:
        """The names of the tasks whose result was not returned yet."""
        return frozenset(self._running)

    def start(self, name: str, task: Callable[[], R]) -> None:
        thread = Thread(target=self._run_task, args=(name, task), name=name, daemon=True)
        self._running[name] = thread
        thread.start()

    def wait_for_result(self, timeout_s: float) -> TaskResult[R] | None:
        """Return the result of a task that has ended, or None after the timeout."""
        try:
            result = self._results.get(timeout=max(timeout_s, 0.001))
        except Empty:
            return None

        self._running.pop(result.name).join()
        return result

    def join(self) -> None:
        """Wait until all tasks have ended."""
        for thread in self._running.values():
            thread.join()

    def _run_task(self, name: str, task: Callable[[], R]) -> None:
        try:
            self._results.put(TaskResult(name, task()))
        except BaseException as error:
            # Raised by the thread that waits
            self._results.put(TaskResult(name, error))


class JobPool(ThreadPool[JobEnd]):
    """Runs agent jobs. Leaving the context ends running jobs with all their processes.

    They are killed at once, or after the grace period if the user stopped the run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._jobs: list[SandboxedJob] = []
        self._stop_level = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        # After a stop by the user, agents have the grace period to end by themselves
        self._raise_stop_level(1 if isinstance(error, Interrupted) else 2)
        self.join()

    def start_job(self, job_id: str, run: JobFunction) -> None:
        """Run a job. `run` must register its sandboxed job before it starts it."""
        self.start(job_id, lambda: run(self._register_job))

    def stop_all(self) -> None:
        """Ask every job to end. A job that does not is killed after the grace period."""
        self._raise_stop_level(1)

    def _raise_stop_level(self, level: int) -> None:
        with self._lock:
            for job in self._jobs:
                for _ in range(level - self._stop_level):
                    job.stop()
            self._stop_level = max(level, self._stop_level)

    def _register_job(self, job: SandboxedJob) -> None:
        with self._lock:
            self._jobs.append(job)
            for _ in range(self._stop_level):
                job.stop()
