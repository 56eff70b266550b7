"""The agents of a repository.

Those that are configured and can be started; where none is configured, those found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.config import AgentSettings, Config
from phasegate.core.agents.harnesses import HARNESSES, INSTALLABLE_HARNESSES, SCRIPTED
from phasegate.core.agents.roles import choose_agent_for_role
from phasegate.core.workflow.lifecycle import Refusal
from phasegate.errors import ConfigError
from phasegate.sandbox.environment import filter_search_path
from phasegate.sandbox.run_program import find_program


class ConfiguredFolder(Protocol):
    """Where agents are looked for: a folder and what was configured there."""

    @property
    def root(self) -> Path: ...

    @property
    def config(self) -> Config: ...


class NamedAgent(NamedTuple):
    """An agent under the name that people use."""

    name: str
    settings: AgentSettings


def find_startable_agents(place: ConfiguredFolder) -> Mapping[str, AgentSettings]:
    """The agents that can be started, in the order of the configuration."""
    candidates = place.config.agents or list_builtin_agents()
    return {name: agent for name, agent in candidates.items() if can_start_agent(place, agent)}


def list_builtin_agents() -> Mapping[str, AgentSettings]:
    """The agents that need no configuration, each under the name of its program."""
    return {row.program: AgentSettings(row.kind) for row in INSTALLABLE_HARNESSES.values()}


def get_agent_command(agent: AgentSettings) -> tuple[str, ...]:
    """The configured command, or that of the harness."""
    return agent.command or HARNESSES[agent.harness].command


def can_start_agent(place: ConfiguredFolder, agent: AgentSettings) -> bool:
    """Whether the agent's program is there."""
    return agent.harness == SCRIPTED or find_agent_program(place, agent) is not None


def find_agent_program(place: ConfiguredFolder, agent: AgentSettings) -> str | None:
    """Where the agent's program lies, as a job will find it; None where it is missing."""
    command = get_agent_command(agent)
    if command:
        return find_program(
            command[0], path=filter_search_path(os.environ.get("PATH", "")), cwd=place.root
        )

    return None


def choose_agent(
    place: ConfiguredFolder,
    role: str,
    phase: str,
    requested: str | None = None,
    limited_until_s: Mapping[str, float] | None = None,
    authors: tuple[str, ...] = (),
) -> NamedAgent:
    """The agent that serves a role in a phase, or an error that says how to get one.

    One that rests at a limit is stood in for by its fallback, or by that one's; where all of them
    rest, the one that rests least is named.
    """
    agents = find_startable_agents(place)
    name = choose_agent_for_role(
        role=role,
        phase=phase,
        roles=place.config.roles,
        available=tuple(agents),
        requested=requested,
        authors=authors,
    )

    if isinstance(name, Refusal):
        raise ConfigError(name.reason, name.hint)

    until_s = limited_until_s or {}
    # Of equals the first
    name = min(_walk_fallbacks(agents, name), key=lambda one: until_s.get(one, 0.0))

    return NamedAgent(name, agents[name])


def _walk_fallbacks(agents: Mapping[str, AgentSettings], name: str | None) -> Iterator[str]:
    """An agent, the one that stands in for it, and so on; no one twice."""
    seen: set[str] = set()
    while name is not None and name in agents and name not in seen:
        seen.add(name)
        yield name
        name = agents[name].fallback


def format_time_of_day(moment_s: float) -> str:
    """A moment as people read it."""
    return datetime.fromtimestamp(moment_s).astimezone().strftime("%H:%M:%S")
