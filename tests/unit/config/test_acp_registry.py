"""The registry of ACP agents is data: one entry that is wrong costs that entry, and no other."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from phasegate.config.acp_registry import parse_registry

GOOD: dict[str, Any] = {
    "id": "mine",
    "name": "Mine",
    "distribution": {
        "npx": {"package": "@me/mine-cli@1.2.3", "args": ["--acp"], "env": {"MINE_UPDATE": "0"}}
    },
}


def read(*entries: object) -> dict[str, Any]:
    return {
        **parse_registry(
            json.dumps({"version": "1.0.0", "agents": entries, "extensions": []}).encode()
        )
    }


def test_an_npm_agent_is_known_by_its_package_without_the_version() -> None:
    row = read(GOOD)["mine"]
    assert row.command == ("mine-cli", "--acp")
    assert row.install_instruction == "npm install -g @me/mine-cli@latest"
    assert row.acp_env == (("MINE_UPDATE", "0"),)
    assert row.key_variables == (), "no variable is passed on that nobody named"


def test_agents_by_uv_and_as_files_are_known_too() -> None:
    by_uv = {
        "id": "a",
        "name": "A",
        "distribution": {"uvx": {"package": "a-agent", "args": ["serve"]}},
    }
    as_file = {
        "id": "b",
        "name": "B",
        "distribution": {"binary": {"linux-x86_64": {"cmd": "./b", "args": ["acp"]}}},
    }
    found = read(by_uv, as_file)
    assert (found["a"].command, found["a"].install_instruction) == (
        ("a-agent", "serve"),
        "uv tool install a-agent",
    )
    assert found["b"].command == ("b", "acp")


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "x"},
        {**GOOD, "id": "../x"},
        {**GOOD, "distribution": {}},
        {**GOOD, "distribution": {"npx": {"package": "@me/-rf", "args": []}}},
        {**GOOD, "distribution": {"npx": {"package": "x", "args": "--acp"}}},
        {**GOOD, "distribution": {"npx": {"package": "x", "env": {"A=B": "1"}}}},
        {**GOOD, "phasegate": {"keys": ["A B"]}},
        {**GOOD, "phasegate": {"program": "/bin/sh"}},
        "text",
        None,
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_read_is_left_out_and_the_others_stay(wrong: object) -> None:
    assert set(read(wrong, {**GOOD, "id": "good"})) == {"good"}


@pytest.mark.parametrize("data", [b"", b"[]", b'{"agents": {}}', b"\xff"])
def test_what_is_no_registry_is_an_error(data: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        parse_registry(data)
