"""The environment of a job: an allow-list and nothing besides."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.errors import ConfigError
from phasegate.sandbox.environment import build_environment, filter_search_path


def test_nothing_is_passed_on_that_was_not_named() -> None:
    source = {
        "PATH": "/usr/bin",
        "SECRET_KEY": "s",
        "OPENAI_BASE_URL": "http://evil.test",
        "LANG": "de_DE.UTF-8",
    }
    assert build_environment((), {}, source=source) == {
        "PATH": "/usr/bin",
        "TERM": "dumb",
        "LANG": "de_DE.UTF-8",
    }


def test_allowed_names_are_passed_on_when_they_are_set_and_given_values_win() -> None:
    env = build_environment(
        ["KEY", "UNSET", "BOTH"], {"BOTH": "given"}, source={"KEY": "k", "BOTH": "outer"}
    )
    assert env == {
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TERM": "dumb",
        "KEY": "k",
        "BOTH": "given",
    }


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("/a:/b", "/a:/b"),
        (":/a", "/a"),
        ("/a::.:bin:../x:/b:/a", "/a:/b"),
        ("", "/usr/local/bin:/usr/bin:/bin"),
        (".", "/usr/local/bin:/usr/bin:/bin"),
    ],
)
def test_no_entry_of_path_leads_into_the_repository(path: str, safe: str) -> None:
    assert filter_search_path(path) == safe


def test_a_tool_chain_below_the_home_folder_is_told_where_it_is(tmp_path: Path) -> None:
    (tmp_path / ".rustup").mkdir()
    env = build_environment(source={"HOME": str(tmp_path), "PATH": "/bin"})
    assert env["RUSTUP_HOME"] == str(tmp_path / ".rustup")
    assert "NVM_DIR" not in env


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y")])
def test_a_name_or_value_that_no_environment_can_hold_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        build_environment(values={name: value}, source={})
