"""A checkout for a package, new and out of the pool, against `git worktree add` of the same commit."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.large_repository import SLUG, TERMS, US, large_repository, path_of
from bench.measure import Row, cpu_ms
from phasegate.workspace.changes import Observation, observe
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.repository import Repository
from phasegate.workspace.upkeep import remove_checkout, take_checkout

FILES = 20_000
ROUNDS = 9
GOAL_NEW, GOAL_POOLED = 1.1, 0.3
ASSIGNMENT = Assignment(SLUG, "WP01")


def rows() -> list[Row]:
    with large_repository(FILES) as repository:
        reference = repository.root.parent / "reference"
        found = [_round(repository, reference) for _ in range(ROUNDS + 1)][1:]
    new, pooled, added = (statistics.median(times) for times in zip(*found, strict=True))
    return [
        Row(f"checkout of {FILES} files, against git worktree add", new, added, GOAL_NEW),
        Row(f"checkout of {FILES} files out of the pool, against git worktree add", pooled, added, GOAL_POOLED),
    ]


def _round(repository: Repository, reference: Path) -> tuple[float, float, float]:
    """One of each. What cleans up between them is not counted."""
    new = cpu_ms(_take(repository))
    _use(repository, keep=True)
    pooled = cpu_ms(_take(repository))
    _use(repository, keep=False)
    added = cpu_ms(lambda: _git(repository, "worktree", "add", "--quiet", "--detach", str(reference)))
    shutil.rmtree(reference)
    _git(repository, "worktree", "prune")
    return new, pooled, added


def _take(repository: Repository) -> Callable[[], Checkout]:
    return lambda: take_checkout(repository, ASSIGNMENT, TERMS)


def _use(repository: Repository, keep: bool) -> None:
    """It is whole and clean; then an agent works in it, and it is done with."""
    checkout = find_checkout(repository, ASSIGNMENT)
    assert checkout is not None
    seen = observe(checkout)
    assert isinstance(seen, Observation)
    assert seen.changes == ()
    for number in range(0, FILES, 1000):
        (checkout.folder / path_of(number)).write_text("work\n")
    remove_checkout(checkout, US, keep_for_reuse=keep, discard=True)


def _git(repository: Repository, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository.root, check=True, capture_output=True)
