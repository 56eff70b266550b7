"""Agents at work side by side: what the thread that waits for them must hear, whatever else happens to it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from threading import Event, Timer

import pytest

from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.job_threads import JobPool, RegisterJob, TaskResult

WAIT_S, MOST_S = 0.05, 60.0


@pytest.fixture
def interrupted() -> Iterator[list[int]]:
    """The signals that came. Who handles one is longer at it than a wait lasts, as on a busy machine."""
    found: list[int] = []

    def handle(number: int, _frame: object) -> None:
        until_s = time.monotonic() + 2 * WAIT_S
        while time.monotonic() < until_s:
            pass
        found.append(number)

    before = signal.signal(signal.SIGALRM, handle)
    yield found
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_wait_ends_also_when_the_handling_of_a_signal_took_longer_than_it(
    interrupted: list[int],
) -> None:
    """It went on until the next job ended: a run that was told to stop did not."""
    may_end, why = Event(), RuntimeError("it could not be run")

    def work(_announce: RegisterJob) -> JobEnd:
        may_end.wait()
        raise why

    give_up = Timer(MOST_S, may_end.set)
    give_up.start()
    with JobPool() as pool:
        pool.start_job("one", work)
        while len(interrupted) < 3:
            signal.setitimer(signal.ITIMER_REAL, WAIT_S / 2)
            assert pool.wait_for_result(WAIT_S) is None
        may_end.set()
        assert pool.wait_for_result(MOST_S) == TaskResult("one", why)
    give_up.cancel()
