"""Our own git does what we say, and nothing that somebody configured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.git import GitFailed, find_git, git
from phasegate.workspace.repository.outside_changes import (
    capture_outside_state,
    find_outside_changes,
)
from phasegate.workspace.repository.repository import (
    FALLBACK_IDENTITY,
    open_repository,
    read_user_identity,
    resolve_commit,
)
from support.git_project import git as plain_git
from support.git_project import make_checkout, make_repository, write


def _fake_git(folder: Path, says: str) -> None:
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / "git").chmod(0o755)


@pytest.mark.parametrize("says", ["git version 2.37.9", "git version 1.8.3.1", "nonsense"])
def test_a_git_that_is_too_old_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    _fake_git(tmp_path / "bin", says)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(EnvironmentUnavailable, match="too old"):
        find_git()


@pytest.mark.parametrize(
    "says", ["git version 2.38.0", "git version 2.39.5 (Apple Git-154)", "git version 3.0.0"]
)
def test_a_git_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    _fake_git(tmp_path / "bin", says)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_git() == str(tmp_path / "bin/git")


def test_no_git_at_all_is_said_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnavailable) as caught:
        find_git()
    assert "install git" in caught.value.hint


def test_no_setting_of_the_person_reaches_our_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "project")
    write(
        tmp_path / "home", {".gitconfig": f"[core]\n\thooksPath = {tmp_path}\n[user]\n\tname = X\n"}
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert (
        git(repository.place(), "config", "--get", "user.name", accepted_exit_codes=(1,)).stdout
        == b""
    )
    assert (
        git(repository.place(), "config", "core.hooksPath").stdout
        == os.fsencode(os.devnull) + b"\n"
    )
    assert resolve_commit(repository, "main") is not None


def test_a_failure_names_the_command_and_shows_no_control_characters(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    with pytest.raises(GitFailed) as caught:
        git(repository.place(), "cat-file", "blob", "\x1b[31mred")
    assert caught.value.message.startswith("git cat-file failed")
    assert caught.value.message.isprintable()


def test_a_folder_without_a_repository_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a usable repository"):
        open_repository(tmp_path)


def test_a_repository_of_somebody_else_is_opened_only_if_the_person_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repository(tmp_path / "project").root
    if os.getuid() != 0:
        pytest.skip("giving a folder to somebody else takes root")
    for path in (root, root / ".git"):
        os.chown(path, 12345, 12345)
    with pytest.raises(ConfigError):
        open_repository(root)
    write(tmp_path / "home", {".gitconfig": f"[safe]\n\tdirectory = {root}\n"})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home/.gitconfig"))
    assert open_repository(root).root == root
    make_checkout(open_repository(root))


def test_commits_of_ours_carry_the_persons_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "project")
    assert read_user_identity(repository) == ("Test", "test@example.invalid")
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}")
    plain_git(repository.root, "config", "user.useConfigOnly", "true")
    assert read_user_identity(repository) == FALLBACK_IDENTITY


@pytest.mark.demand("D6.e")
def test_changes_outside_are_seen_where_no_sandbox_holds(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    before = capture_outside_state(repository)
    write(checkout.folder, {"src/login.py": "inside\n"})
    assert find_outside_changes(repository, before, capture_outside_state(repository)) == []
    write(
        checkout.folder, {"../../src/auth.py": "outside\n", "../../.git/hooks/pre-commit": "evil"}
    )
    plain_git(checkout.folder, "-C", "../..", "branch", "-f", "planted", "main")
    plain_git(repository.root, "branch", "ours", "main")
    found = find_outside_changes(
        repository, before, capture_outside_state(repository), own_refs=["refs/heads/ours"]
    )
    assert [change.path for change in found] == [
        ".git/hooks/pre-commit",
        "refs/heads/planted",
        "src/auth.py",
    ]
