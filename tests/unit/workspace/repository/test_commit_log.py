"""Commits and diffs are read from git as a reviewer gets them."""

from __future__ import annotations

from pathlib import Path

from phasegate.workspace.repository.commit_log import diff_changes, diff_commits
from support.git_project import git, make_repository, write


def test_a_diff_of_no_paths_is_empty(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    before = git(repository.root, "rev-parse", "HEAD").strip()
    write(repository.root, {"src/new.py": "added = 1\n"})
    git(repository.root, "add", "-A")
    git(repository.root, "commit", "-qm", "add")
    after = git(repository.root, "rev-parse", "HEAD").strip()

    for diff in (diff_commits, diff_changes):
        assert "+added = 1" in diff(repository, before, after)
        assert "+added = 1" in diff(repository, before, after, ["src/new.py"])
        assert diff(repository, before, after, []) == ""
