"""The refs of a feature that another machine had."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.errors import StateConflict
from phasegate.workspace.snapshots.feature_snapshot import import_refs
from support.git_project import git, make_repository

SLUG = "001-user-login"


def test_code_that_names_a_ref_of_somebody_else_moves_none(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo")
    root, own = repository.root, f"refs/heads/feat/{SLUG}"
    first = git(root, "rev-parse", "HEAD").strip()
    git(root, "commit", "-q", "--allow-empty", "-m", "later")
    last = git(root, "rev-parse", "main").strip()
    for stranger in (
        "refs/heads/main",
        f"{own}-2",
        "refs/heads/feat/002-other",
        "HEAD",
        "refs/phasegate/audit",
    ):
        with pytest.raises(StateConflict, match="a ref of another feature"):
            import_refs(repository, SLUG, {own: first, stranger: first})
        assert git(root, "rev-parse", "main").strip() == last
        assert git(root, "for-each-ref", own) == ""
    import_refs(repository, SLUG, {own: first, f"{own}-WP01": last})
    assert git(root, "rev-parse", own).strip() == first, "control"
