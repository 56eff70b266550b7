"""The scope check of a package in 100 000 files, against `git status` in a worktree with the same changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.large_repository import SLUG, TERMS, large_repository, path_of
from bench.measure import Row, command, in_turn
from phasegate.core.paths.scope import Scope, find_violations
from phasegate.workspace.changes.changes import Observation, observe_checkout
from phasegate.workspace.checkout.checkout import Assignment, Checkout
from phasegate.workspace.checkout_lifecycle import ensure_checkout

FILES = 100_000
GOAL = 4


def rows() -> list[Row]:
    with large_repository(FILES, in_memory=False) as repository:
        checkout = ensure_checkout(repository, Assignment(SLUG, "WP01"), TERMS)
        reference = repository.root.parent / "reference"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", reference],
            cwd=repository.root,
            check=True,
        )
        for folder in (checkout.folder, reference):
            _work(folder)
        assert len(_checked(checkout)) == 1
        ours, status = in_turn(
            lambda: _checked(checkout), command(["git", "status", "--porcelain"], reference)
        )
    return [Row(f"scope check in {FILES} files, against git status", ours, status, GOAL)]


def _work(folder: Path) -> None:
    """What an agent does: edits, one of them committed; new files; one deleted, moved, made executable, and litter."""
    for number in range(0, 2000, 100):
        (folder / path_of(number)).write_text("edited\n")
    identity = ("-c", "user.name=Agent", "-c", "user.email=agent@localhost")
    subprocess.run(["git", *identity, "commit", "-qam", "WP01: edit"], cwd=folder, check=True)
    for number in range(5):
        (folder / f"package00/new{number}.py").write_text("new\n")
    (folder / path_of(3)).unlink()
    (folder / path_of(4)).rename(folder / "package00/moved.py")
    (folder / path_of(5)).chmod(0o755)
    (folder / "node_modules").mkdir()
    (folder / "node_modules/litter.js").write_text("x")


def _checked(checkout: Checkout) -> list[object]:
    seen = observe_checkout(checkout)
    assert isinstance(seen, Observation)
    assert len(seen.changes) == 28
    return [*find_violations(seen.changes, Scope(["package00/**"]), seen.tracked_files)]
