"""Our hook in somebody else's settings: put in once, taken out without a trace, everything else kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.agents.program_settings import UnsupportedSettings, add_hook, remove_hook

HOOKS = {row.kind: row.hooks for row in INSTALLABLE_HARNESSES.values() if row.hooks}

CLAUDE, CURSOR = HOOKS["claude_code"], HOOKS["cursor"]
THEIRS: dict[str, Any] = {
    "permissions": {"allow": ["Bash(git status)"]},
    "hooks": {
        "Stop": [
            {
                "matcher": "*",
                "hooks": [{"type": "command", "command": "say done", "timeout": 5}],
                "unknown": 1,
            }
        ],
        "PreToolUse": [
            {
                "matcher": "Bash",
                "hooks": [{"type": "command", "command": "phasegate-lookalike next"}],
            }
        ],
    },
    "model": "größer",
}


def commands(text: str, event: str = "Stop") -> list[str]:
    return [
        handler["command"]
        for group in json.loads(text)["hooks"][event]
        for handler in group["hooks"]
    ]


@pytest.mark.parametrize("harness", HOOKS)
def test_a_new_file_holds_our_hook_and_goes_when_it_is_taken_out(harness: str) -> None:
    text = add_hook(None, HOOKS[harness])
    assert HOOKS[harness].command in text
    assert add_hook(text, HOOKS[harness]) == text
    assert remove_hook(text, HOOKS[harness]) is None


@pytest.mark.parametrize("indent", [1, 2, 4, "\t"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_other_hooks_keys_indentation_and_letters_are_kept(indent: int | str, end: str) -> None:
    before = json.dumps(THEIRS, indent=indent, ensure_ascii=False) + end
    after = add_hook(before, CLAUDE)
    assert commands(after) == ["say done", "phasegate next --as message"]
    assert add_hook(after, CLAUDE) == after
    assert remove_hook(after, CLAUDE) == before


def test_line_ends_are_kept() -> None:
    before = json.dumps(THEIRS, indent=2).replace("\n", "\r\n")
    after = add_hook(before, CLAUDE)
    assert "\n" not in after.replace("\r\n", "")
    assert remove_hook(after, CLAUDE) == before


def test_ours_in_a_group_of_theirs_is_taken_out_alone() -> None:
    group = {
        "matcher": "*",
        "hooks": [{"command": "a"}, {"command": "/usr/bin/phasegate next"}, {"command": "b"}],
    }
    after = remove_hook(json.dumps({"hooks": {"Stop": [group]}}), CLAUDE)
    assert after is not None
    assert json.loads(after) == {
        "hooks": {"Stop": [{"matcher": "*", "hooks": [{"command": "a"}, {"command": "b"}]}]}
    }


def test_an_older_form_of_ours_is_replaced() -> None:
    older = json.dumps(
        {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "phasegate next"}]}]}}
    )
    assert commands(add_hook(older, CLAUDE)) == ["phasegate next --as message"]


def test_an_empty_object_of_theirs_stays() -> None:
    assert remove_hook(add_hook("{}", CLAUDE), CLAUDE) == "{}"


def test_settings_without_ours_are_the_same_bytes() -> None:
    odd = '{"hooks" : {"Stop":[ ]},   "a":1e3}'
    assert remove_hook(odd, CLAUDE) == odd


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n  "a": 1,\n}', ":3:1"),
        ('{\n  // a comment\n  "a": 1\n}', ":2:3"),
        ("", ":1:1"),
        ("[]", "the file is not an object"),
        ('{"hooks": []}', "hooks is not an object"),
        ('{"hooks": {"Stop": {}}}', "hooks.Stop is not a list"),
        ('{"hooks": {"Stop": [1]}}', "hooks.Stop[0] is not an object"),
        ('{"hooks": {"Stop": [{"hooks": [[]]}]}}', "hooks.Stop[0].hooks is not a list of objects"),
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_settings_that_we_could_only_damage_are_refused_with_the_place(
    text: str, place: str
) -> None:
    for change in (add_hook, remove_hook):
        with pytest.raises(UnsupportedSettings) as refused:
            change(text, CLAUDE)
        assert CLAUDE.file in str(refused.value)
        assert place in str(refused.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=5), _JSON, max_size=4),
    st.lists(st.text(max_size=12), min_size=1, max_size=3),
    st.sampled_from(sorted(HOOKS)),
)
def test_putting_in_and_taking_out_is_nothing(
    rest: dict[str, Any], others: list[str], harness: str
) -> None:
    hooks = HOOKS[harness]
    handlers = [{"command": command} for command in others]
    entries = [{"hooks": [handler]} for handler in handlers] if hooks.grouped else handlers
    before = json.dumps({**rest, "hooks": {hooks.event: entries, "Other": [1]}}, indent=2)
    after = add_hook(before, hooks)
    assert hooks.command in after
    assert remove_hook(after, hooks) == before


def test_cursor_keeps_its_version() -> None:
    assert json.loads(add_hook(None, CURSOR))["version"] == 1
    assert json.loads(add_hook('{"version": 2, "hooks": {}}', CURSOR))["version"] == 2
