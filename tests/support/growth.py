"""Work that grows no faster than its input, shown on a machine that has other things to do as well."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

Input = TypeVar("Input")

ATTEMPTS = 6
MEASURABLE_S = 0.004  # what takes less is drowned by the noise of the clock and the caches
SLACK = 3  # of the ratio of the sizes: at 8 times the input, 24 times the time; what is quadratic takes 64 times


class Growth(NamedTuple):
    """What one attempt measured."""

    small_s: float
    large_s: float

    def __str__(self) -> str:
        return f"{self.small_s * 1000:.1f} ms became {self.large_s * 1000:.1f} ms"


def assert_grows_no_faster_than_its_input(
    work: Callable[[Input], object], make: Callable[[int], Input], small: int, large: int
) -> None:
    """One attempt of several shows that work(make(large)) takes at most 3 * large / small times work(make(small)).

    Making the input is not measured. Noise only adds time, so one good attempt is proof enough, and
    what grows with the square of its input fails all of them (if large / small is 8 or more).
    """
    assert large >= 8 * small, "a smaller step cannot tell a square from a line"
    seen = []
    with _no_collector():
        inputs = make(small), make(large)
        times = _times_to_be_measurable(work, inputs[0])
        for _ in range(ATTEMPTS):
            seen.append(_attempt(work, *inputs, times))
            if seen[-1].large_s <= SLACK * large / small * seen[-1].small_s:
                return
    raise AssertionError(
        f"grew too fast at {large / small:g} times the input: " + "; ".join(map(str, seen))
    )


def cpu_s(work: Callable[[Input], object], given: Input, times: int = 1) -> float:
    """What this process spends on doing the work some times: what others do at the same time hardly counts."""
    started_s = time.process_time()
    for _ in range(times):
        work(given)
    return time.process_time() - started_s


def _attempt(work: Callable[[Input], object], small: Input, large: Input, times: int) -> Growth:
    """The small work is done before and after the large one, so that a burst of noise does not lengthen it alone."""
    before_s = cpu_s(work, small, times)
    large_s = cpu_s(work, large, times)
    return Growth(min(before_s, cpu_s(work, small, times)), large_s)


def _times_to_be_measurable(work: Callable[[Input], object], small: Input) -> int:
    times = 1
    while cpu_s(work, small, times) < MEASURABLE_S:
        times *= 2
    return times


@contextmanager
def _no_collector() -> Iterator[None]:
    """The collector would go through all that pytest holds, at a moment of its own choice."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
