"""What our own processes move, told exactly from what others move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.workspace.repository import ref_log
from phasegate.workspace.repository.outside_changes import (
    capture_outside_state,
    find_outside_changes,
)
from phasegate.workspace.repository.ref_log import (
    RefMove,
    is_explained_by_moves,
    last_move_number,
    log_moves,
    moves_since,
)
from phasegate.workspace.repository.refs import advance_branch, move_refs
from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.repository_locks import repository_lock
from support.git_project import git, make_repository, write

REF = "refs/heads/feat/x"


def _changed(repository: Repository, before: object) -> list[str]:
    return [
        change.path
        for change in find_outside_changes(repository, before, capture_outside_state(repository))
    ]  # type: ignore[arg-type]


def _commit(repository: Repository, files: dict[str, str]) -> str:
    """A commit on top of main that no branch has."""
    git(repository.root, "checkout", "-q", "--detach")
    write(repository.root, files)
    git(repository.root, "add", "-A")
    git(repository.root, "commit", "-q", "-m", "more")
    made = git(repository.root, "rev-parse", "HEAD").strip()
    git(repository.root, "checkout", "-q", "main")
    return made


@pytest.mark.demand("D6.e")
def test_a_ref_that_we_moved_is_no_change_and_the_same_move_by_another_is(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    main, other = (
        git(repository.root, "rev-parse", "main").strip(),
        _commit(repository, {"a": "1\n"}),
    )
    before = capture_outside_state(repository)
    with repository_lock(repository) as lock:
        move_refs(repository, lock, [RefMove(REF, None, main)], "test")
        move_refs(repository, lock, [RefMove(REF, main, other)], "test")
    assert _changed(repository, before) == []
    git(repository.root, "update-ref", REF, main)
    assert _changed(repository, capture_outside_state(repository)) == []
    before = capture_outside_state(repository)
    git(repository.root, "update-ref", REF, other)
    assert _changed(repository, before) == [REF], (
        "we made that very move, but before the first look"
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        *((*change, True) for change in ("aa", "ab", "ac", "bc", "a-")),
        *((*change, False) for change in ("cb", "-b", "xc", "ax", "ba")),
    ],
)
def test_only_a_chain_of_noted_moves_explains_a_change(
    before: str, after: str, expected: bool
) -> None:
    moves = [RefMove(REF, "a", "b"), RefMove(REF, "b", "c"), RefMove(REF, "c", "-")]
    assert is_explained_by_moves(before, after, moves) is expected


@pytest.mark.demand("D6.e", "W8.g")
def test_the_files_of_a_person_who_stands_on_a_branch_that_we_move_are_ours(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    main, new = (
        git(repository.root, "rev-parse", "main").strip(),
        _commit(repository, {"a.txt": "1\n", "b.txt": "1\n"}),
    )
    before = capture_outside_state(repository)
    with repository_lock(repository) as lock:
        assert advance_branch(repository, lock, "main", main, new, "test") is None
    assert (repository.root / "a.txt").read_text() == "1\n"
    assert _changed(repository, before) == []
    (repository.root / "b.txt").write_text("somebody else's\n")
    assert _changed(repository, before) == ["b.txt"]


WATCHES_ITSELF = """
import sys
from pathlib import Path
from phasegate.workspace.repository.outside_changes import capture_outside_state, find_outside_changes
from phasegate.workspace.repository.repository import open_repository
repository = open_repository(Path.cwd())
before = capture_outside_state(repository)
print("as a run says what it does", file=sys.stderr, flush=True)
Path("theirs").write_text("changed")
print([change.path for change in find_outside_changes(repository, before, capture_outside_state(repository))])
"""


@pytest.mark.demand("D6.e")
def test_the_log_of_a_run_in_the_repository_is_no_change_of_an_agent(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "project").root
    with (root / "said").open("w") as said:
        done = subprocess.run(
            [sys.executable, "-c", WATCHES_ITSELF], cwd=root, stdout=subprocess.PIPE, stderr=said
        )
    assert "as a run says" in (root / "said").read_text()
    assert done.stdout.decode() == "['theirs']\n"


def test_half_a_line_of_a_dead_writer_costs_no_later_move(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    with repository_lock(repository) as lock:
        log_moves(repository, lock, [RefMove(REF, None, "a")])
        with (repository.own_folder / "moves").open("ab") as file:
            file.write(b'[2, "refs/hea')
        log_moves(repository, lock, [RefMove(REF, "a", "b"), RefMove("name\udcff\n", "a", None)])
    assert moves_since(repository, 1) == [
        RefMove(REF, "a", "b"),
        RefMove("name\udcff\n", "a", None),
    ]


def test_the_log_stays_small_and_looking_too_far_back_explains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "project")
    monkeypatch.setattr(ref_log, "_MAX_LOG_BYTES", 2000)
    with repository_lock(repository) as lock:
        for number in range(200):
            log_moves(repository, lock, [RefMove(REF, str(number), str(number + 1))])
    assert (repository.own_folder / "moves").stat().st_size < 4000
    assert last_move_number(repository) == 200
    assert is_explained_by_moves("190", "200", moves_since(repository, 190))
    assert not is_explained_by_moves("0", "200", moves_since(repository, 0))
