"""The id of a repository: one for all clones of a remote, another for every other repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.errors import StateConflict
from phasegate.workspace.repository.remote import Remote
from phasegate.workspace.repository.repository import Repository, open_repository
from phasegate.workspace.repository_id import (
    REPOSITORY_REF,
    NewRepositoryId,
    check_remote_id,
    read_local_id,
)
from support.git_project import US, git, make_repository


def new_id(text: str) -> NewRepositoryId:
    return NewRepositoryId(text, US)


def make_remote(folder: Path, name: str = "origin") -> Remote:
    source = make_repository(folder / f"{name}-source")
    git(folder, "clone", "-q", "--bare", str(source.root), f"{name}.git")
    return Remote(str(folder / f"{name}.git"))


def clone(folder: Path, remote: Remote, name: str, *options: str) -> Repository:
    git(folder, "clone", "-q", *options, remote.url, name)
    return open_repository(folder / name)


def test_all_clones_of_a_remote_find_one_id_and_a_repository_with_the_same_history_another(
    tmp_path: Path,
) -> None:
    remote = make_remote(tmp_path)
    git(tmp_path, "clone", "-q", "--bare", remote.url, "fork.git")
    fork = Remote(str(tmp_path / "fork.git"))
    first, second = clone(tmp_path, remote, "first"), clone(tmp_path, remote, "second")
    assert check_remote_id(first, remote, None) == "", "asking makes none"
    made = check_remote_id(first, remote, new_id("a"))
    assert check_remote_id(second, remote, new_id("b")) == made
    assert (read_local_id(first), read_local_id(second)) == (made, made)
    assert check_remote_id(clone(tmp_path, fork, "third"), fork, new_id("c")) != made


def test_a_clone_that_is_pointed_to_another_repository_is_refused(tmp_path: Path) -> None:
    remote, other = make_remote(tmp_path), make_remote(tmp_path, "other")
    ours = clone(tmp_path, remote, "ours")
    made = check_remote_id(ours, remote, new_id("a"))
    with pytest.raises(StateConflict, match="no longer has"):
        check_remote_id(ours, other, new_id("b"))
    check_remote_id(clone(tmp_path, other, "theirs"), other, new_id("c"))
    with pytest.raises(StateConflict, match="this clone belongs to"):
        check_remote_id(ours, other, new_id("d"))
    assert check_remote_id(ours, remote, None) == made, "control"


def test_an_id_that_was_copied_to_a_repository_with_another_history_is_refused(
    tmp_path: Path,
) -> None:
    remote = make_remote(tmp_path)
    ours = clone(tmp_path, remote, "ours")
    check_remote_id(ours, remote, new_id("a"))
    make_repository(tmp_path / "unlike", {"other.txt": "another history\n"})
    git(tmp_path, "clone", "-q", "--bare", str(tmp_path / "unlike"), "unlike.git")
    unlike = Remote(str(tmp_path / "unlike.git"))
    git(ours.root, "push", "-q", unlike.url, REPOSITORY_REF)
    with pytest.raises(StateConflict, match="another history"):
        check_remote_id(clone(tmp_path, unlike, "victim"), unlike, None)
    shallow = clone(tmp_path, Remote(f"file://{remote.url}"), "shallow", "--depth", "1")
    assert check_remote_id(shallow, remote, None), "control: a shallow clone has no root"
