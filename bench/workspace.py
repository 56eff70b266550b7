"""A checkout for a package, new and out of the pool, against `git worktree add` of the same commit."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable

from bench.large_repository import SLUG, TERMS, US, large_repository, path_of
from bench.measure import Row, cpu_ms
from phasegate.workspace.changes.changes import Observation, observe_checkout
from phasegate.workspace.checkout.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.checkout_lifecycle import ensure_checkout, remove_checkout
from phasegate.workspace.repository.repository import Repository

FILES = 20_000
ROUNDS = 5
GOAL_NEW, GOAL_POOLED = 1.1, 0.3
ASSIGNMENT = Assignment(SLUG, "WP01")


def rows() -> list[Row]:
    """A new one is measured in memory, where it can be told from the noise; a pooled one where people have theirs."""
    with large_repository(FILES, in_memory=True) as repository:
        new, added = _medians([_new(repository) for _ in range(ROUNDS)])
    with large_repository(FILES, in_memory=False) as repository:
        _new(repository, keep=True)
        pooled, added_on_disk = _medians([_pooled(repository) for _ in range(ROUNDS)])
    return [
        Row(f"checkout of {FILES} files, against git worktree add", new, added, GOAL_NEW),
        Row(
            f"checkout of {FILES} files out of the pool, against git worktree add",
            pooled,
            added_on_disk,
            GOAL_POOLED,
        ),
    ]


def _medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    ours, theirs = zip(*times, strict=True)
    return statistics.median(ours), statistics.median(theirs)


def _new(repository: Repository, keep: bool = False) -> tuple[float, float]:
    new = cpu_ms(_take(repository))
    _use(repository, keep)
    return new, _added(repository)


def _pooled(repository: Repository) -> tuple[float, float]:
    pooled = cpu_ms(_take(repository))
    _use(repository, keep=True)
    return pooled, _added(repository)


def _added(repository: Repository) -> float:
    reference = repository.root.parent / "reference"
    spent = cpu_ms(
        lambda: _git(repository, "worktree", "add", "--quiet", "--detach", str(reference))
    )
    # A disk is slow to make files for a while after it removed others: what is not needed is moved away.
    reference.rename(reference.with_name(f"away{time.monotonic_ns()}"))
    _git(repository, "worktree", "prune")
    return spent


def _take(repository: Repository) -> Callable[[], Checkout]:
    return lambda: ensure_checkout(repository, ASSIGNMENT, TERMS)


def _use(repository: Repository, keep: bool) -> None:
    """It is whole and clean; then an agent works in it, and it is done with."""
    checkout = find_checkout(repository, ASSIGNMENT)
    assert checkout is not None
    seen = observe_checkout(checkout)
    assert isinstance(seen, Observation)
    assert seen.changes == ()
    for number in range(0, FILES, 1000):
        (checkout.folder / path_of(number)).write_text("work\n")
    remove_checkout(checkout, US, keep_for_reuse=keep, discard=True)


def _git(repository: Repository, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository.root, check=True, capture_output=True)
