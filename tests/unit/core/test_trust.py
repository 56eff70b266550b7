"""Which settings of a repository count before the user has accepted it: a fixed list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec
import pytest

from phasegate.config.settings import Config, SettingsTable
from phasegate.core.trust import group_settings

Key = tuple[str, ...]
# What it can do at worst: waste time, or make a run stricter. Commands run in the sandbox, without
# credentials. Consider that before you add a key.
HARMLESS = {
    *(f"agents.NAME.{key}" for key in ("timeout_s", "first_output_timeout_s", "max_retries")),
    *(f"agents.NAME.{key}" for key in ("template", "mcp_tools", "fallback", "harness")),
    "roles.NAME",
    *(f"run.{key}" for key in ("parallel", "final_review", "merge_feature_folder")),
    *(f"run.{key}" for key in ("question_timeout_s", "commit_hooks")),
    *(f"checks.NAME.{key}" for key in ("root", "setup", "build", "test", "coverage", "lint")),
    *(f"checks.NAME.{key}" for key in ("typecheck", "scan", "coverage_min")),
    "protect.paths",
    "already_failing",
}
NOT_A_VALUE = object()


def leaves(type_: Any, key: Key = ()) -> Iterator[Key]:
    """Every key of the configuration; a name that the user chooses is NAME."""
    if isinstance(type_, type) and issubclass(type_, SettingsTable):
        for field in msgspec.structs.fields(type_):
            yield from leaves(field.type, (*key, field.name))
    elif get_origin(type_) is not None and get_origin(type_) is Mapping:
        yield from leaves(get_args(type_)[1], (*key, "NAME"))
    else:
        yield key


def needs_trust(key: Key, value: object = NOT_A_VALUE) -> bool:
    entries: list[tuple[Key, object]] = [(key, value)]
    if key[0] == "agents" and key[-1] != "harness":
        entries.append(((*key[:2], "harness"), "claude_code"))
    return any(found == key for part in group_settings(entries) for found, _ in part.settings)


@pytest.mark.parametrize("key", [*leaves(Config)], ids=".".join)
def test_every_key_needs_trust_unless_it_is_listed_as_harmless(key: Key) -> None:
    value = "claude_code" if key[-1] == "harness" else NOT_A_VALUE
    assert needs_trust(key, value) is (".".join(key) not in HARMLESS)


@pytest.mark.parametrize(
    ("key", "strict", "loose"),
    [
        (("run", "sandbox"), "offline", "none"),
        (("mcp", "decisions"), "ask", "agent"),
        (("merge", "auto_merge"), False, True),
        (("merge", "draft"), True, False),
        (("agents", "x", "share_sign_in"), False, True),
        (("agents", "x", "env"), ["ANTHROPIC_API_KEY"], ["ANTHROPIC_API_KEY", "GH_TOKEN"]),
        (("agents", "x", "harness"), "codex", "command"),
    ],
    ids=str,
)
def test_a_stricter_value_needs_no_trust(key: Key, strict: object, loose: object) -> None:
    assert needs_trust(key, loose)
    assert not needs_trust(key, strict)


@pytest.mark.parametrize("name", ["*", "x"])
def test_settings_for_all_agents_need_trust(name: str) -> None:
    key = ("agents", name, "timeout_s")
    assert needs_trust(key, 1) is (name == "*")
