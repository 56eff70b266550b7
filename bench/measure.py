"""How speed is measured on noisy machines: CPU time, ours and a reference in turn, ratio of the medians."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROUNDS = 9


class PeerTime(NamedTuple):
    """How many times our CPU time a peer takes for the same, or None and a word about why that is not known."""

    program: str
    ratio: float | None
    word: str = ""

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{self.program}: {self.word}"
        return f"{self.program} {self.ratio:.3g} ×" + (f" ({self.word})" if self.word else "")


class Row(NamedTuple):
    """One line of the table. `goal` is the largest ratio of ours to the reference; the smallest if `at_least`."""

    name: str
    ours: float
    reference: float
    goal: float
    at_least: bool = False
    unit: str = "ms CPU"
    peers: tuple[PeerTime, ...] = ()  # shown, never judged

    @property
    def ratio(self) -> float:
        return self.ours / self.reference if self.reference else float("inf")

    @property
    def met(self) -> bool:
        return self.ratio >= self.goal if self.at_least else self.ratio <= self.goal


def in_turn(
    ours: Callable[[], object], reference: Callable[[], object], rounds: int = ROUNDS
) -> tuple[float, float]:
    """The median CPU milliseconds of two pieces of work in this process and its children, run one after the other."""
    mine: list[float] = []
    theirs: list[float] = []
    ours()
    reference()
    for _ in range(rounds):
        mine.append(cpu_ms(ours))
        theirs.append(cpu_ms(reference))
    return statistics.median(mine), statistics.median(theirs)


def cpu_ms(work: Callable[[], object]) -> float:
    """The CPU time that a piece of work takes, its child processes included."""
    start = _cpu_s()
    work()
    return (_cpu_s() - start) * 1000


def command(argv: Sequence[str], cwd: Path | None = None) -> Callable[[], object]:
    """A program to be measured: it must succeed, and its output is thrown away."""

    def run() -> None:
        subprocess.run(
            argv, cwd=cwd, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    return run


def pressure() -> str:
    """What else the machine was doing: reported, never judged."""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} CPUs, load {load:.1f}, {time.strftime('%Y-%m-%d')}"


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
