"""The proposal of an agent: only commands, only for folders that exist; the rest of the file stays."""

from __future__ import annotations

import tomllib

import pytest

from phasegate.engine.tools.discover import MAX_COMMAND_CHARS, parse_proposal, with_commands
from phasegate.errors import StateConflict


def block(text: str) -> str:
    return f"I found this:\n\n```toml\n{text}```\n"


def test_commands_belong_to_their_folder_and_others_to_the_default_root() -> None:
    answer = block('test = " make test "\n[app]\nsetup = "npm ci"\nlint = "npm run lint"\n')
    assert parse_proposal(answer, {"app"}, "lib") == {
        "lib": {"test": "make test"},
        "app": {"setup": "npm ci", "lint": "npm run lint"},
    }


def test_commands_outside_of_tables_join_the_table_of_the_default_root() -> None:
    answer = block('test = "make test"\nlint = "make lint"\n[app]\nlint = "npm run lint"\n')
    assert parse_proposal(answer, {"app"}, "app") == {
        "app": {"test": "make test", "lint": "npm run lint"}
    }


def test_the_last_block_counts() -> None:
    answer = block('test = "a"\n') + block('test = "b"\n').replace("\n", "\r\n")
    assert parse_proposal(answer, ()) == {"": {"test": "b"}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no commands"),
        ("[app]\n", "it has no commands"),
        ("test = \n", "not TOML"),
        ('deploy = "make"\n', "deploy cannot be used"),
        ('[elsewhere]\ntest = "make"\n', "elsewhere cannot be used"),
        ('["../app"]\ntest = "make"\n', "../app cannot be used"),
        ("test = 7\n", "test cannot be used"),
        ('test = " "\n', "test cannot be used"),
        ('test = "a\\nb"\n', "test cannot be used"),
        ('test = "a\\u001bb"\n', "test cannot be used"),
        (f'test = "{"x" * (MAX_COMMAND_CHARS + 1)}"\n', "test cannot be used"),
        ('[app.test]\nx = "make"\n', "test cannot be used"),
        ('[app]\ntest = "a"\n["app/"]\ntest = "b"\n', "app cannot be used"),
    ],
)
def test_any_other_proposal_is_refused_as_a_whole(text: str, problem: str) -> None:
    with pytest.raises(StateConflict, match=problem):
        parse_proposal(block(text), {"app"})
    with pytest.raises(StateConflict):
        parse_proposal(f'test = "outside of a block"\n{text}', {"app"})


def test_a_new_table_is_added_behind_what_is_there() -> None:
    text = "# mine\n[run]\nparallel = 3"
    changed = with_commands(text, "python", {"test": 'say "a\\b"'}, root="lib")
    assert changed.startswith(f"{text}\n\n[checks.python]\n")
    assert tomllib.loads(changed)["checks"]["python"] == {"root": "lib", "test": 'say "a\\b"'}
    assert with_commands("", "python", {"test": "a"}) == '[checks.python]\ntest = "a"\n'


def test_in_a_table_that_exists_only_the_given_commands_change() -> None:
    text = (
        '[checks.python] # ours\ntest = "old"\nlint = "ruff" # kept\n\n'
        '[checks.other]\ntest = "other"\n'
    )
    changed = with_commands(text, "python", {"test": "new"})
    assert tomllib.loads(changed)["checks"] == {
        "python": {"test": "new", "lint": "ruff"},
        "other": {"test": "other"},
    }
    assert "# ours" in changed
    assert "# kept" in changed


def test_a_header_at_the_end_of_a_file_without_a_line_feed_is_continued_on_a_new_line() -> None:
    changed = with_commands("[run]\nparallel = 3\n[checks.python]", "python", {"test": "new"})
    assert tomllib.loads(changed) == {"run": {"parallel": 3}, "checks": {"python": {"test": "new"}}}
