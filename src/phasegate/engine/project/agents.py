"""Find and choose the agents of a repository.

These are the configured agents that can be started, or the installed ones if none is configured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.config.settings import AgentSettings, Config
from phasegate.core.agents.harnesses import HARNESSES, INSTALLABLE_HARNESSES, SCRIPTED
from phasegate.core.agents.roles import choose_agent_for_role
from phasegate.core.workflow.phase_transitions import Refusal
from phasegate.errors import ConfigError
from phasegate.sandbox.environment import filter_search_path
from phasegate.sandbox.run_program import find_program


class ConfiguredFolder(Protocol):
    """A folder with a configuration, in which agents are looked up."""

    @property
    def root(self) -> Path: ...

    @property
    def config(self) -> Config: ...


class NamedAgent(NamedTuple):
    """An agent with its configured name."""

    name: str
    settings: AgentSettings


def find_startable_agents(place: ConfiguredFolder) -> Mapping[str, AgentSettings]:
    """Return the agents that can be started, in the order of the configuration."""
    return {
        name: agent
        for name, agent in list_known_agents(place).items()
        if can_start_agent(place, agent)
    }


def list_known_agents(place: ConfiguredFolder) -> Mapping[str, AgentSettings]:
    """Return the configured agents, else those that need no configuration, installed or not."""
    return place.config.agents or list_builtin_agents()


def list_builtin_agents() -> Mapping[str, AgentSettings]:
    """Return the agents that need no configuration, by the name of their program."""
    return {row.program: AgentSettings(row.kind) for row in INSTALLABLE_HARNESSES.values()}


def get_agent_command(agent: AgentSettings) -> tuple[str, ...]:
    """Return the configured command, or the default of the harness."""
    return agent.command or HARNESSES[agent.harness].command


def can_start_agent(place: ConfiguredFolder, agent: AgentSettings) -> bool:
    """Return True if the agent's program is installed."""
    return agent.harness == SCRIPTED or find_agent_program(place, agent) is not None


def find_agent_program(place: ConfiguredFolder, agent: AgentSettings) -> str | None:
    """Return the path of the agent's program, as a job will find it, or None if it is missing."""
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
    agents: Mapping[str, AgentSettings] | None = None,
) -> NamedAgent:
    """Choose the agent for a role in a phase; raise ConfigError if there is none.

    The choice is among `agents`, by default those that can be started here.

    A rate-limited agent is replaced by the first available one in its chain of fallbacks. If all of
    them are rate-limited, the one whose limit ends first is returned.
    """
    if agents is None:
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
    # `min` returns the first one of equal candidates
    name = min(walk_fallbacks(agents, name), key=lambda candidate: until_s.get(candidate, 0.0))
    return NamedAgent(name, agents[name])


def walk_fallbacks(agents: Mapping[str, AgentSettings], name: str | None) -> Iterator[str]:
    """Yield an agent and its chain of fallbacks; each agent only once."""
    seen: set[str] = set()
    while name is not None and name in agents and name not in seen:
        seen.add(name)
        yield name
        name = agents[name].fallback


def format_time_of_day(moment_s: float) -> str:
    """Format a time as local HH:MM:SS."""
    return datetime.fromtimestamp(moment_s).astimezone().strftime("%H:%M:%S")
