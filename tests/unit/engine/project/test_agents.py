"""Agents that can be started, and the one that is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from phasegate.config.settings import AgentSettings, Config, HarnessKind
from phasegate.engine.project.agents import (
    choose_agent,
    find_agent_program,
    find_startable_agents,
    list_builtin_agents,
)
from phasegate.errors import ConfigError

SCRIPTED = HarnessKind("scripted")


class Folder(NamedTuple):
    root: Path
    config: Config


def chain(**fallbacks: str | None) -> dict[str, AgentSettings]:
    return {name: AgentSettings(SCRIPTED, fallback=other) for name, other in fallbacks.items()}


def chosen(agents: dict[str, AgentSettings], limited_until_s: dict[str, float]) -> str:
    folder = Folder(Path(), Config(agents=agents, roles={"implement": next(iter(agents))}))
    return choose_agent(
        folder, "implement", "06-implementation", limited_until_s=limited_until_s
    ).name


@pytest.mark.parametrize(
    ("limited_until_s", "name"),
    [
        ({}, "a"),
        ({"b": 9.0}, "a"),
        ({"a": 9.0}, "b"),
        ({"a": 9.0, "b": 9.0}, "c"),
        ({"a": 7.0, "b": 9.0, "c": 8.0}, "a"),
        ({"a": 9.0, "b": 7.0, "c": 8.0}, "b"),
        ({"a": 9.0, "b": 9.0, "c": 9.0}, "a"),
    ],
)
def test_the_first_free_agent_of_the_chain_is_taken_else_the_one_that_is_free_first(
    limited_until_s: dict[str, float], name: str
) -> None:
    assert chosen(chain(a="b", b="c", c=None), limited_until_s) == name


def test_fallbacks_in_a_circle_and_unknown_ones_end_the_chain() -> None:
    assert chosen(chain(a="b", b="a"), {"a": 9.0, "b": 8.0}) == "b"
    assert chosen(chain(a="gone"), {"a": 9.0}) == "a"


def test_an_unknown_agent_is_refused() -> None:
    folder = Folder(Path(), Config(agents=chain(a=None)))
    with pytest.raises(ConfigError, match="nobody"):
        choose_agent(folder, "implement", "06-implementation", requested="nobody")


def test_an_agent_can_be_started_only_if_its_program_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(program.parent))
    command = HarnessKind("command")
    agents = {
        "there": AgentSettings(command, command=("mine",)),
        "missing": AgentSettings(command, command=("other",)),
        "scripted": AgentSettings(SCRIPTED),
    }
    folder = Folder(tmp_path, Config(agents=agents))
    assert [*find_startable_agents(folder)] == ["scripted"]
    program.chmod(0o755)
    assert [*find_startable_agents(folder)] == ["there", "scripted"]
    assert find_agent_program(folder, agents["there"]) == str(program)


def test_without_a_configuration_the_known_programs_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = Folder(tmp_path, Config())
    assert find_startable_agents(folder) == {}
    name = next(iter(list_builtin_agents()))
    (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / name).chmod(0o755)
    assert [*find_startable_agents(folder)] == [name]
