"""Read the version of an agent's program."""

from __future__ import annotations

from phasegate.agents.programs.command import resolve_repository_files
from phasegate.agents.run.version import ProgramVersion, probe_version
from phasegate.config.settings import AgentSettings
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.engine.project.agents import (
    ConfiguredFolder,
    find_agent_program,
    get_agent_command,
)
from phasegate.sandbox.probe import choose_level


def read_agent_version(folder: ConfiguredFolder, agent: AgentSettings) -> ProgramVersion:
    """Run the program in the strictest sandbox to read its version: it needs no network."""
    arguments = HARNESSES[agent.harness].version_arguments
    path = find_agent_program(folder, agent)
    if path is None:
        return ProgramVersion(problem="program not found")
    if not arguments:
        return ProgramVersion(problem="the program cannot report it")

    _, *own = resolve_repository_files(folder.root, agent.command or get_agent_command(agent)[:1])
    return probe_version((path, *own, *arguments), choose_level(None, needs_network=False))
