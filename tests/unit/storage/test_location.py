"""Which repository a folder belongs to, and what is kept out of git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from phasegate.errors import ConfigError, StateConflict
from phasegate.files.git_exclude import add_git_excludes
from phasegate.storage.location import find_root, locate_repository, prepare_data_folder, state_home


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", folder, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "first")
    return root


def test_the_root_is_found_from_any_folder_below(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    assert find_root(root / "a" / "b") == find_root(root) == root


def test_a_worktree_leads_to_the_main_working_tree(root: Path, tmp_path: Path) -> None:
    git(root, "worktree", "add", "--quiet", str(tmp_path / "elsewhere"))
    assert find_root(tmp_path / "elsewhere") == root
    assert locate_repository(tmp_path / "elsewhere", {}).git_dir == root / ".git"


def test_a_packages_checkout_is_not_asked_where_it_belongs(root: Path, tmp_path: Path) -> None:
    checkout = root / ".worktrees" / "001-login-WP01"
    git(root, "worktree", "add", "--quiet", str(checkout))
    (tmp_path / "evil").mkdir()
    git(tmp_path / "evil", "init", "--quiet")
    (checkout / ".git").write_text(f"gitdir: {tmp_path / 'evil' / '.git'}\n")
    assert git(checkout, "rev-parse", "--git-dir").strip() == str(tmp_path / "evil" / ".git"), (
        "control: git believes it"
    )
    assert find_root(checkout) == root


def test_a_submodule_is_a_repository_of_its_own(root: Path, tmp_path: Path) -> None:
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(root), "sub")
    assert find_root(root / "sub") == root / "sub"
    assert locate_repository(root / "sub", {}).git_dir == root / ".git" / "modules" / "sub"


def test_outside_a_repository_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not in a git repository") as caught:
        find_root(tmp_path)
    assert "git init" in caught.value.hint


@pytest.mark.parametrize("content", ["nonsense", "gitdir: /nowhere/at/all", ""])
def test_a_broken_git_file_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / ".git").write_text(content)
    with pytest.raises(ConfigError, match=r"\.git"):
        find_root(tmp_path)


def test_the_state_directory_follows_the_environment() -> None:
    assert state_home({"XDG_STATE_HOME": "/var/state"}) == Path("/var/state/phasegate")
    assert (
        state_home({"XDG_STATE_HOME": "relative"})
        == Path(os.environ["HOME"]) / ".local/state/phasegate"
    )


def test_our_folders_are_kept_out_of_git_and_the_users_lines_stay(root: Path) -> None:
    exclude = root / ".git" / "info" / "exclude"
    exclude.write_text("*.mine")
    prepare_data_folder(locate_repository(root, os.environ))
    once = exclude.read_text()
    prepare_data_folder(locate_repository(root, os.environ))
    assert exclude.read_text() == once == "*.mine\n/.phasegate/\n/.worktrees/\n/.isdlc/\n"
    (root / ".phasegate" / "x").touch()
    (root / "seen").touch()
    assert git(root, "status", "--porcelain") == "?? seen\n"


def test_an_exclude_file_that_is_no_file_is_refused(root: Path) -> None:
    exclude = root / ".git" / "info" / "exclude"
    exclude.unlink()
    os.mkfifo(exclude)
    with pytest.raises(ConfigError, match="not a file"):
        add_git_excludes(root / ".git", [".phasegate"])


def test_a_link_in_place_of_our_folder_is_refused(root: Path, tmp_path: Path) -> None:
    (root / ".phasegate").symlink_to(tmp_path)
    with pytest.raises(StateConflict, match="not a folder"):
        prepare_data_folder(locate_repository(root, os.environ))
    (root / ".phasegate").unlink()
    (root / ".phasegate").write_text("a file")
    with pytest.raises(StateConflict, match="not a folder"):
        prepare_data_folder(locate_repository(root, os.environ))
