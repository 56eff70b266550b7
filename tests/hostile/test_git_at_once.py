"""Many at once in one repository: nothing fails, nothing is lost, nothing is overwritten (G01, G05)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phasegate.workspace.changes.harvest import Harvest, harvest_checkout
from phasegate.workspace.checkout.checkout import Assignment
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.checkout_lifecycle import (
    RemovedCheckout,
    ensure_checkout,
    ensure_feature_branch,
    remove_checkout,
)
from phasegate.workspace.repository.merge import AlreadyMerged, PreparedMerge, prepare_merge
from phasegate.workspace.repository.refs import RefMoved
from phasegate.workspace.repository.repository import Repository
from support.git_project import (
    SLUG,
    TERMS,
    US,
    finish_merge,
    git,
    make_repository,
    seen_in,
    show,
    write,
)

FEATURE = f"feat/{SLUG}"


def _package(repository: Repository, number: int, agent_index: int | None = None) -> str:
    """One package from checkout to merge, as `dispatch` does it."""
    work = f"WP{number:02}"
    checkout = ensure_checkout(repository, Assignment(SLUG, work, agent_index), TERMS)
    path = f"src/part_{number}_{agent_index or 0}.py"
    write(checkout.folder, {path: f"{work}\n"})
    git(checkout.folder, "add", "-A")
    git(checkout.folder, "commit", "-qm", f"{work}: part {agent_index or 0}")
    done = harvest_checkout(
        checkout,
        seen_in(checkout),
        lambda found: found == path,
        committer=US,
        title=f"{work}: rest",
    )
    assert isinstance(done, Harvest), done
    assert isinstance(
        remove_checkout(checkout, US, keep_for_reuse=number % 2 == 0), RemovedCheckout
    )
    return path


def _merged(repository: Repository, source: str, target: str) -> int:
    """Merge by compare and swap until it holds; how often it had to be prepared."""
    for count in range(1, 1000):
        prepared = prepare_merge(repository, source, target, f"Merge {source}", US)
        if isinstance(prepared, AlreadyMerged):
            return count
        assert isinstance(prepared, PreparedMerge), prepared
        done = finish_merge(repository, prepared)
        if isinstance(done, AlreadyMerged):
            return count
        assert isinstance(done, RefMoved), done
    raise AssertionError("never merged")


@pytest.mark.demand("W4.i", "D4.e")
def test_packages_at_once_all_arrive_without_a_lock_between_them(tmp_path: Path) -> None:
    """By compare and swap alone; 32 of them by whole dispatches are in tests/e2e/test_dispatch_side_by_side.py."""
    repository = make_repository(tmp_path / "project")
    ensure_feature_branch(repository, SLUG, "main")

    def whole(number: int) -> str:
        path = _package(repository, number)
        _merged(repository, f"{FEATURE}-WP{number:02}", FEATURE)
        return path

    with ThreadPoolExecutor(10) as pool:
        paths = [*pool.map(whole, range(1, 11))]
    assert sorted(git(repository.root, "ls-tree", "-r", "--name-only", FEATURE).split()) == sorted(
        [*git(repository.root, "ls-tree", "-r", "--name-only", "main").split(), *paths]
    )
    merges = git(
        repository.root, "log", "--first-parent", "--merges", "--format=%s", FEATURE
    ).splitlines()
    assert len(merges) == len(set(merges)) == 10
    left = {path.name for path in (repository.root / ".worktrees").iterdir()}
    assert left <= {".pool"}
    git(repository.root, "fsck", "--strict")


@pytest.mark.demand("D11.c")
def test_16_agents_of_one_package_join_on_one_branch(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    ensure_feature_branch(repository, SLUG, "main")
    with ThreadPoolExecutor(16) as pool:
        paths = [*pool.map(lambda index: _package(repository, 1, index), range(16))]
    branch = f"{FEATURE}-WP01"
    assert set(paths) <= set(git(repository.root, "ls-tree", "-r", "--name-only", branch).split())
    subjects = git(repository.root, "log", "--format=%s", f"main..{branch}").splitlines()
    assert sorted(subjects) == sorted(f"WP01: part {index}" for index in range(16))


def test_16_naive_updates_of_one_branch_lose_work(tmp_path: Path) -> None:
    """The control: read, commit, write without compare and swap."""
    root = make_repository(tmp_path / "project").root
    ready = threading.Barrier(16)

    def naive(number: int) -> None:
        head = git(root, "rev-parse", "main").strip()
        ready.wait()
        commit = git(
            root, "commit-tree", "-p", head, "-m", f"part {number}", f"{head}^{{tree}}"
        ).strip()
        git(root, "update-ref", "refs/heads/main", commit, check=False)

    with ThreadPoolExecutor(16) as pool:
        [*pool.map(naive, range(16))]
    assert git(root, "rev-list", "--count", "main").strip() != "17"


@pytest.mark.demand("W8.e")
def test_a_target_that_moves_during_the_checks_is_merged_anew(tmp_path: Path) -> None:
    """What was checked is what comes into force: a merge that was not checked never does."""
    repository = make_repository(tmp_path / "project")
    ensure_feature_branch(repository, SLUG, "main")
    _package(repository, 1)
    _merged(repository, f"{FEATURE}-WP01", FEATURE)
    checked: list[str] = []

    def check_while_main_moves(prepared: PreparedMerge, moves: bool) -> None:
        checked.append(prepared.commit)
        export_tree(repository, prepared.commit, tmp_path / f"checks{len(checked)}")
        if moves:
            git(repository.root, "commit", "-q", "--allow-empty", "-m", f"meanwhile {len(checked)}")

    for moves in (True, True, False):
        prepared = prepare_merge(repository, FEATURE, "main", "Merge", US)
        assert isinstance(prepared, PreparedMerge)
        check_while_main_moves(prepared, moves)
        done = finish_merge(repository, prepared)
        assert isinstance(done, RefMoved if moves else AlreadyMerged)
    assert git(repository.root, "rev-parse", "main").strip() == checked[-1]
    assert show(repository, "main", "src/part_1_0.py") == b"WP01\n"
    log = git(repository.root, "log", "--first-parent", "--format=%s", "main").splitlines()
    assert log == ["Merge", "meanwhile 2", "meanwhile 1", "Begin"]
