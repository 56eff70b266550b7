"""Branches merge without a checkout, by compare and swap; a person's files are moved along or left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.workspace.repository.merge import (
    AlreadyMerged,
    MergeConflict,
    PreparedMerge,
    prepare_merge,
)
from phasegate.workspace.repository.refs import RefMoved
from phasegate.workspace.repository.repository import Repository, open_repository
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.user_checkout import Obstacle
from support.git_project import SLUG, US, finish_merge, git, make_repository, show, write

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow

FEATURE = f"feat/{SLUG}"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """`main` is checked out; the feature's branch changed, added, moved and removed files."""
    repository = make_repository(tmp_path / "project")
    git(repository.root, "checkout", "-q", "-b", FEATURE)
    write(repository.root, {"src/login.py": "feature\n", "src/new/deep.py": "new\n"})
    git(repository.root, "rm", "-q", "docs/guide.md")
    git(repository.root, "add", "-A")
    git(repository.root, "commit", "-qm", "feature")
    git(repository.root, "checkout", "-q", "main")
    return repository


def _prepared(repository: Repository, source: str = FEATURE, target: str = "main") -> PreparedMerge:
    prepared = prepare_merge(repository, source, target, "Merge the feature", US)
    assert isinstance(prepared, PreparedMerge), prepared
    return prepared


def _state(repository: Repository) -> tuple[str, dict[str, bytes]]:
    """Everything of the person's that a merge could touch."""
    files = {
        str(path.relative_to(repository.root)): path.read_bytes()
        for path in repository.root.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(repository.root).parts
    }
    return git(repository.root, "for-each-ref") + git(repository.root, "diff", "--cached"), files


@pytest.mark.demand("W8.f", "W8.g", "W4.d")
def test_a_clean_checkout_of_the_base_is_moved_along(repository: Repository) -> None:
    prepared = _prepared(repository)
    assert git(repository.root, "rev-parse", "main").strip() == prepared.target_commit
    assert (repository.root / "docs/guide.md").exists()
    assert finish_merge(repository, prepared) == AlreadyMerged("main", prepared.commit)
    assert git(repository.root, "rev-parse", "main").strip() == prepared.commit
    assert git(repository.root, "status", "--porcelain") == ""
    assert (repository.root / "src/new/deep.py").read_text() == "new\n"
    assert not (repository.root / "docs").exists()
    assert git(repository.root, "log", "--first-parent", "--format=%s").splitlines() == [
        "Merge the feature",
        "Begin",
    ]


@pytest.mark.demand("W8.e")
def test_a_branch_that_is_not_checked_out_moves_alone(repository: Repository) -> None:
    git(repository.root, "checkout", "-q", "-b", "elsewhere")
    before = _state(repository)[1]
    assert isinstance(finish_merge(repository, _prepared(repository)), AlreadyMerged)
    assert _state(repository)[1] == before
    assert show(repository, "main", "src/login.py") == b"feature\n"


@pytest.mark.demand("W8.h")
@pytest.mark.parametrize(
    ("edit", "paths"),
    [
        ({"src/login.py": "mine\n"}, ("src/login.py",)),
        ({"README.md": "mine\n"}, ("README.md",)),
        ({"src/new/deep.py": "untracked, in the way\n"}, ("src/new/deep.py",)),
        ({"src/new": "a file where a folder must be\n"}, ("src/new",)),
    ],
)
def test_uncommitted_work_stops_the_merge_and_is_not_touched(
    repository: Repository, edit: dict[str, str], paths: tuple[str, ...]
) -> None:
    write(repository.root, edit)
    before = _state(repository)
    stopped = finish_merge(repository, _prepared(repository))
    assert stopped == Obstacle(repository.root, "files that are not committed", paths)
    assert _state(repository) == before
    assert not (repository.git_dir / "index.lock").exists()


@pytest.mark.demand("W8.h")
def test_an_ignored_file_in_the_way_is_not_overwritten(repository: Repository) -> None:
    """The control: `git merge` overwrites ignored files without a word."""
    git(repository.root, "checkout", "-q", FEATURE)
    write(repository.root, {"notes.log": "from the feature\n"})
    git(repository.root, "add", "-f", "notes.log")
    git(repository.root, "commit", "-qm", "log")
    git(repository.root, "checkout", "-q", "main")
    write(repository.root, {"notes.log": "precious\n"})
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert stopped.paths == ("notes.log",)
    assert (repository.root / "notes.log").read_text() == "precious\n"
    git(repository.root, "merge", "-q", "--no-edit", FEATURE)
    assert (repository.root / "notes.log").read_text() == "from the feature\n"


@pytest.mark.demand("W8.h")
@pytest.mark.parametrize("staged", ["src/login.py", "README.md", "brand_new.py"])
def test_staged_work_stops_the_merge(repository: Repository, staged: str) -> None:
    write(repository.root, {staged: "staged\n"})
    git(repository.root, "add", staged)
    before = _state(repository)
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert stopped.paths == (staged,)
    assert _state(repository) == before


def test_untracked_files_that_are_not_in_the_way_stay(repository: Repository) -> None:
    write(repository.root, {"notes.txt": "mine\n", "src/new/own.py": "mine\n"})
    assert isinstance(finish_merge(repository, _prepared(repository)), AlreadyMerged)
    assert (repository.root / "notes.txt").read_text() == "mine\n"
    assert (repository.root / "src/new/own.py").read_text() == "mine\n"


def test_a_touched_file_with_the_same_content_is_clean(repository: Repository) -> None:
    os.utime(repository.root / "src/login.py")
    assert isinstance(finish_merge(repository, _prepared(repository)), AlreadyMerged)


@pytest.mark.parametrize("mark", ["MERGE_HEAD", "CHERRY_PICK_HEAD", "rebase-merge"])
def test_an_operation_under_way_stops_the_merge(repository: Repository, mark: str) -> None:
    (repository.git_dir / mark).mkdir() if "-" in mark else (repository.git_dir / mark).write_text(
        "x"
    )
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert stopped.reason.endswith("is in progress")


def test_the_person_at_work_in_git_stops_the_merge(repository: Repository) -> None:
    (repository.git_dir / "index.lock").write_text("")
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert "index.lock" in stopped.reason
    assert (repository.git_dir / "index.lock").exists()


def test_a_linked_worktree_of_the_person_is_moved_along_too(
    repository: Repository, tmp_path: Path
) -> None:
    git(repository.root, "checkout", "-q", "-b", "elsewhere")
    git(repository.root, "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    assert isinstance(finish_merge(repository, _prepared(repository)), AlreadyMerged)
    assert (tmp_path / "linked/src/login.py").read_text() == "feature\n"
    assert git(tmp_path / "linked", "status", "--porcelain") == ""
    write(tmp_path / "linked", {"src/login.py": "mine\n"})
    git(repository.root, "branch", "-q", "more", FEATURE)
    git(repository.root, "checkout", "-q", "more")
    write(repository.root, {"src/login.py": "more\n"})
    git(repository.root, "commit", "-qam", "more")
    stopped = finish_merge(repository, _prepared(repository, "more"))
    assert isinstance(stopped, Obstacle)
    assert stopped.folder == tmp_path / "linked"


def test_a_rebase_of_the_target_in_another_worktree_stops_the_merge(
    repository: Repository, tmp_path: Path
) -> None:
    git(repository.root, "checkout", "-q", "-b", "elsewhere")
    git(repository.root, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    folder = repository.common_dir / "worktrees/linked/rebase-merge"
    folder.mkdir()
    (folder / "head-name").write_text("refs/heads/main\n")
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert "rebase of main" in stopped.reason


def test_line_ends_are_written_as_the_person_has_them(tmp_path: Path) -> None:
    files = {"a.txt": "one\n", ".gitattributes": "*.txt text eol=crlf\n"}
    repository = make_repository(tmp_path / "project", files)
    git(repository.root, "checkout", "-q", "-b", FEATURE)
    write(repository.root, {"a.txt": "two\r\n"})
    git(repository.root, "commit", "-qam", "two")
    git(repository.root, "checkout", "-q", "main")
    assert isinstance(finish_merge(repository, _prepared(repository)), AlreadyMerged)
    assert (repository.root / "a.txt").read_bytes() == b"two\r\n"
    assert show(repository, "main", "a.txt") == b"two\n"
    assert git(repository.root, "status", "--porcelain") == ""


def test_a_file_that_needs_a_filter_program_stops_the_merge(
    repository: Repository, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    git(repository.root, "checkout", "-q", FEATURE)
    write(repository.root, {".gitattributes": "*.py filter=lfs\n"})
    git(repository.root, "add", "-A")
    git(repository.root, "commit", "-qm", "attributes")
    git(repository.root, "checkout", "-q", "main")
    git(repository.root, "config", "filter.lfs.smudge", f"touch {marker}; cat")
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert "filter program" in stopped.reason
    assert not marker.exists()


def test_a_sparse_checkout_stops_the_merge(repository: Repository) -> None:
    git(repository.root, "sparse-checkout", "set", "docs")
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert "sparse" in stopped.reason


def test_an_index_that_only_the_persons_git_can_read_stops_the_merge(
    repository: Repository,
) -> None:
    git(repository.root, "update-index", "--split-index")
    before = _state(repository)
    stopped = finish_merge(repository, _prepared(repository))
    assert isinstance(stopped, Obstacle)
    assert _state(repository) == before


@pytest.mark.demand("D5.b")
def test_a_conflict_is_a_value_that_names_the_files(repository: Repository) -> None:
    write(repository.root, {"src/login.py": "base moved\n"})
    git(repository.root, "commit", "-qam", "base")
    before = _state(repository)
    assert prepare_merge(repository, FEATURE, "main", "x", US) == MergeConflict(
        "main", FEATURE, ("src/login.py",)
    )
    assert _state(repository) == before


@pytest.mark.demand("W5.b")
def test_a_merge_is_not_done_twice(repository: Repository) -> None:
    prepared = _prepared(repository)
    before = git(repository.root, "rev-parse", "main").strip()
    for _ in range(2):
        assert finish_merge(repository, prepared) == AlreadyMerged("main", prepared.commit)
    assert prepare_merge(repository, FEATURE, "main", "again", US) == AlreadyMerged(
        "main", prepared.commit, before
    )
    git(repository.root, "commit", "-q", "--allow-empty", "-m", "later")
    assert isinstance(finish_merge(repository, prepared), AlreadyMerged)
    merges = git(repository.root, "log", "--first-parent", "--merges", "--format=%s").splitlines()
    assert merges == ["Merge the feature"]


def test_a_target_that_moved_is_a_value_and_nothing_is_done(repository: Repository) -> None:
    prepared = _prepared(repository)
    git(repository.root, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    before = _state(repository)
    moved = finish_merge(repository, prepared)
    assert isinstance(moved, RefMoved)
    assert _state(repository) == before
    assert isinstance(finish_merge(repository, _prepared(repository)), AlreadyMerged)


def test_a_move_that_was_cut_off_after_the_files_were_written_is_ended(
    repository: Repository,
) -> None:
    """Died between the files and the ref: the files are the new ones, index and ref the old ones."""
    prepared = _prepared(repository)
    write(repository.root, {"src/login.py": "feature\n", "src/new/deep.py": "new\n"})
    (repository.root / "docs/guide.md").unlink()
    assert finish_merge(repository, prepared) == AlreadyMerged("main", prepared.commit)
    assert git(repository.root, "status", "--porcelain") == ""


def test_a_move_that_was_cut_off_after_the_index_was_written_is_ended(
    repository: Repository,
) -> None:
    prepared = _prepared(repository)
    git(repository.root, "read-tree", "-m", "-u", "main", prepared.commit)
    assert git(repository.root, "status", "--porcelain") != ""
    assert finish_merge(repository, prepared) == AlreadyMerged("main", prepared.commit)
    assert git(repository.root, "status", "--porcelain") == ""


@pytest.mark.demand("W4.i")
def test_a_second_process_waits_for_the_repository(repository: Repository) -> None:
    code = f"""
from pathlib import Path
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.repository import open_repository
print("asks", flush=True)
with repository_lock(open_repository(Path({str(repository.root)!r}))):
    print("has", flush=True)
"""
    with repository_lock(open_repository(repository.root)):
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "asks\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
    assert other.communicate(timeout=60)[0] == "has\n"
