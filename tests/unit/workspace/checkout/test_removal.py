"""Anything that an agent can make can be removed, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phasegate.files.safe_open import folder_descriptor
from phasegate.workspace.checkout.removal import open_trash_folder, remove_tree
from support.git_project import write


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    write(tmp_path / "x", {"a/b/c": "1", "a/d": "2", "e": "3"})
    os.mkfifo(tmp_path / "x/pipe")
    (tmp_path / "x/closed").mkdir()
    write(tmp_path / "x/closed", {"inside/file": "1"})
    (tmp_path / "x/closed/inside").chmod(0)
    (tmp_path / "x/closed").chmod(0)
    remove_tree(tmp_path / "x")
    assert [*tmp_path.iterdir()] == []


def test_what_a_link_points_to_is_not_removed(tmp_path: Path) -> None:
    write(tmp_path / "outside", {"precious": "1"})
    (tmp_path / "x").mkdir()
    (tmp_path / "x/folder").symlink_to(tmp_path / "outside")
    (tmp_path / "x/file").symlink_to(tmp_path / "outside/precious")
    remove_tree(tmp_path / "x")
    (tmp_path / "y").symlink_to(tmp_path / "outside")
    remove_tree(tmp_path / "y")
    assert (tmp_path / "outside/precious").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def test_a_very_deep_folder_is_removed(tmp_path: Path) -> None:
    """The control: the standard library gives up."""
    with folder_descriptor(tmp_path) as top:
        folder = os.dup(top)
        for _ in range(2000):
            os.mkdir("d" * 100, dir_fd=folder)
            below = os.open("d" * 100, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = below
        os.close(folder)
    with pytest.raises((RecursionError, OSError)):
        __import__("shutil").rmtree(tmp_path / ("d" * 100))
    remove_tree(tmp_path / ("d" * 100))
    assert [*tmp_path.iterdir()] == []


def test_what_a_dead_process_left_is_removed_with_the_next(tmp_path: Path) -> None:
    write(tmp_path / ".removing-abc", {"1-1/left": "x"})
    write(tmp_path / "x", {"a": "1"})
    remove_tree(tmp_path / "x")
    assert [*tmp_path.iterdir()] == []


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")
    with folder_descriptor(tmp_path) as root, open_trash_folder(tmp_path) as room:
        room.remove_beneath(root, "a/b/c")
    assert [*tmp_path.iterdir()] == []
