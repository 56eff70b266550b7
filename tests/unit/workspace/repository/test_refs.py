"""Refs move by compare and swap (G05)."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import RefMoved, move_refs
from phasegate.workspace.repository.repository_locks import repository_lock
from support.git_project import git, make_repository

REF = "refs/heads/feat/x"


@pytest.mark.demand("D11.c")
def test_a_ref_that_somebody_else_moved_stays_and_so_do_those_that_were_to_move_with_it(
    tmp_path: Path,
) -> None:
    """Git itself compares, in the same step as it writes: whoever looked before may be late."""
    repository = make_repository(tmp_path / "project")
    first = git(repository.root, "rev-parse", "HEAD").strip()
    theirs, ours = (
        git(repository.root, "commit-tree", "-m", name, "HEAD^{tree}").strip()
        for name in ("a", "b")
    )
    git(repository.root, "update-ref", REF, theirs)
    with repository_lock(repository) as lock:
        moves = [RefMove("refs/heads/feat/y", None, ours), RefMove(REF, first, ours)]
        assert move_refs(repository, lock, moves, "x") == RefMoved(REF, first, theirs)
        assert move_refs(repository, lock, [RefMove(REF, None, ours)], "x") == RefMoved(
            REF, None, theirs
        )
        assert git(repository.root, "rev-parse", REF).strip() == theirs
        assert git(repository.root, "branch", "--list", "feat/y") == ""
        assert move_refs(repository, lock, [RefMove(REF, theirs, ours)], "x") is None
    assert git(repository.root, "rev-parse", REF).strip() == ours
