"""The repositories on a user's boards."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.engine.views.board_registry import (
    add_repository,
    announce_board,
    assign_repository_names,
    list_repositories,
    remove_repository,
)
from phasegate.engine.views.overview import read_board_address
from phasegate.errors import ConfigError


@pytest.fixture(autouse=True)
def own_state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    return folder


def test_a_repository_is_added_once_by_any_folder_in_it(tmp_path: Path) -> None:
    one, two = make(tmp_path / "one"), make(tmp_path / "two words")
    assert list_repositories() == ()
    for folder in (one / "src", two, one):
        add_repository(folder)
    assert list_repositories() == (two, one)


def test_a_deleted_repository_can_be_removed_and_an_unknown_one_cannot(tmp_path: Path) -> None:
    one = make(tmp_path / "one")
    add_repository(one)
    with pytest.raises(ConfigError, match="not on any board"):
        remove_repository(tmp_path / "two")
    one.rename(tmp_path / "elsewhere")
    remove_repository(one)
    assert list_repositories() == ()


@pytest.mark.parametrize("separator", ["\u2028", "\u0085", "\x0b", "\r"])
def test_only_a_line_feed_ends_a_path_in_the_list(tmp_path: Path, separator: str) -> None:
    one = make(tmp_path / f"one{separator}two")
    add_repository(one)
    assert list_repositories() == (one,)


def test_a_path_that_would_break_the_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line feed"):
        add_repository(make(tmp_path / "one\ntwo"))
    assert list_repositories() == ()


def test_names_are_unique_and_fit_into_an_address() -> None:
    roots = [Path("/a/my app"), Path("/b/my-app"), Path("/c/my.app"), Path("/a/my app"), Path("/")]
    assert assign_repository_names(roots) == {
        "my-app": Path("/a/my app"),
        "my-app-2": Path("/b/my-app"),
        "my-app-3": Path("/c/my.app"),
        "root": Path("/"),
    }


def test_the_address_of_a_board_is_known_while_it_runs() -> None:
    assert read_board_address() == ""
    with announce_board("http://127.0.0.1:1", "now"):
        assert read_board_address() == "http://127.0.0.1:1"
    assert read_board_address() == ""
