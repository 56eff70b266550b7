"""The agents of a repository: those that are configured and can be started; where none is configured, those found."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from phasegate.agents.table import HARNESSES
from phasegate.config import Agent
from phasegate.config.settings import Harness
from phasegate.engine.project import Project
from phasegate.errors import ConfigError
from phasegate.rules.lifecycle import Refusal
from phasegate.rules.staffing import serve


class Member(NamedTuple):
    """An agent under the name that people use."""

    name: str
    settings: Agent


def staff(project: Project) -> Mapping[str, Agent]:
    """The agents that can be started, in the order of the configuration."""
    configured = project.config.agents
    if configured:
        return {name: agent for name, agent in configured.items() if can_start(project, agent)}
    commands = {Harness(kind): harness.default_command for kind, harness in HARNESSES.items()}
    known = {kind: command for kind, command in commands.items() if command and kind is not Harness.SCRIPTED}
    return {command[0]: Agent(kind) for kind, command in known.items() if shutil.which(command[0])}


def can_start(project: Project, agent: Agent) -> bool:
    """Whether the agent's program is there."""
    if agent.harness is Harness.SCRIPTED:
        return True
    harness = HARNESSES.get(agent.harness)
    command = agent.command or (harness.default_command if harness else ())
    if not command:
        return False
    program = str(project.root / command[0]) if "/" in command[0] else command[0]
    return shutil.which(program) is not None


def member_for(
    project: Project, role: str, phase: str, wanted: str | None = None, resting: Collection[str] = ()
) -> Member:
    """The agent that serves a role in a phase, or an error that says how to get one.

    One that rests at a limit is stood in for by its fallback, if it has one that does not rest too.
    """
    agents = staff(project)
    name = serve(role, phase, project.config.roles, tuple(agents), wanted)
    if isinstance(name, Refusal):
        raise ConfigError(name.reason, name.hint)
    stand_in = agents[name].fallback
    if name in resting and stand_in is not None and stand_in in agents and stand_in not in resting:
        name = stand_in
    return Member(name, agents[name])


def clock(moment_s: float) -> str:
    """A moment as people read it."""
    return datetime.fromtimestamp(moment_s).astimezone().strftime("%H:%M:%S")
