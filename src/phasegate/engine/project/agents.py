"""The agents of a repository: those that are configured and can be started; where none is configured, those found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from phasegate.config import Agent, Config
from phasegate.core.agents.harnesses import KNOWN, ROWS, SCRIPTED
from phasegate.core.agents.roles import agent_for_role
from phasegate.core.workflow.lifecycle import Refusal
from phasegate.errors import ConfigError
from phasegate.sandbox.environment import safe_path
from phasegate.sandbox.run_program import find_program


class Desk(Protocol):
    """Where agents are looked for: a folder and what was configured there."""

    @property
    def root(self) -> Path: ...

    @property
    def config(self) -> Config: ...


class Member(NamedTuple):
    """An agent under the name that people use."""

    name: str
    settings: Agent


def staff(desk: Desk) -> Mapping[str, Agent]:
    """The agents that can be started, in the order of the configuration."""
    candidates = desk.config.agents or known_agents()
    return {name: agent for name, agent in candidates.items() if can_start(desk, agent)}


def known_agents() -> Mapping[str, Agent]:
    """The agents that need no configuration, each under the name of its program."""
    return {row.program: Agent(row.kind) for row in KNOWN.values()}


def command_of(agent: Agent) -> tuple[str, ...]:
    """The configured command, or that of the harness."""
    return agent.command or ROWS[agent.harness].command


def can_start(desk: Desk, agent: Agent) -> bool:
    """Whether the agent's program is there."""
    return agent.harness == SCRIPTED or program_of(desk, agent) is not None


def program_of(desk: Desk, agent: Agent) -> str | None:
    """Where the agent's program lies, as a job will find it; None where it is missing."""
    command = command_of(agent)
    return find_program(command[0], path=safe_path(os.environ.get("PATH", "")), cwd=desk.root) if command else None


def member_for(
    desk: Desk,
    role: str,
    phase: str,
    wanted: str | None = None,
    resting: Mapping[str, float] | None = None,
    made_by: tuple[str, ...] = (),
) -> Member:
    """The agent that serves a role in a phase, or an error that says how to get one.

    One that rests at a limit is stood in for by its fallback, or by that one's; where all of them rest, the one that
    rests least is named.
    """
    agents = staff(desk)
    name = agent_for_role(role, phase, desk.config.roles, tuple(agents), wanted, made_by)
    if isinstance(name, Refusal):
        raise ConfigError(name.reason, name.hint)
    until_s = resting or {}
    name = min(_in_turn(agents, name), key=lambda one: until_s.get(one, 0.0))  # of equals the first
    return Member(name, agents[name])


def _in_turn(agents: Mapping[str, Agent], name: str | None) -> Iterator[str]:
    """An agent, the one that stands in for it, and so on; no one twice."""
    seen: set[str] = set()
    while name is not None and name in agents and name not in seen:
        seen.add(name)
        yield name
        name = agents[name].fallback


def clock(moment_s: float) -> str:
    """A moment as people read it."""
    return datetime.fromtimestamp(moment_s).astimezone().strftime("%H:%M:%S")
