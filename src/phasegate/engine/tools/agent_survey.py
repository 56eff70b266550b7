"""Survey of the agents on this machine: programs, versions, sign-ins, roles and sandbox levels.

Keys and sign-ins are never read: only whether a variable is set and whether a file exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.run.proxy import EgressPolicy
from phasegate.agents.run.secret_values import is_secret_name
from phasegate.agents.run.version import ProgramVersion
from phasegate.config.acp_registry import resolve_harness_row
from phasegate.config.cross_checks import PROMPT_PHASES
from phasegate.config.load import load_config
from phasegate.config.settings import AgentSettings, Config, SandboxMode
from phasegate.core.agents.harnesses import ACP, HARNESSES, SCRIPTED, HarnessRow
from phasegate.core.agents.hosts import ANY_HOST
from phasegate.core.agents.roles import choose_agent_for_role
from phasegate.core.text.versions import VersionStatus, compare_version
from phasegate.engine.jobs.agent_version import read_agent_version
from phasegate.engine.project.agents import (
    can_start_agent,
    find_agent_program,
    find_startable_agents,
    get_agent_command,
    list_builtin_agents,
)
from phasegate.errors import EnvironmentUnavailable
from phasegate.sandbox.probe import can_restrict_hosts, choose_level, probe_level
from phasegate.sandbox.request import SandboxLevel
from phasegate.storage.location import find_main_worktree

MAX_CONCURRENT = 4
NO_SIGN_IN = "neither a sign-in nor a key was found"
# Phase of roles that have only one
_PHASE_BY_ROLE = {"implement": "06-implementation", "review": "06-implementation"}


class FolderConfig(NamedTuple):
    """A folder and its configuration; it need not be a repository."""

    root: Path
    config: Config


class MissingPrerequisite(NamedTuple):
    """A prerequisite that an agent lacks, and how to get it."""

    what: str
    remedy: str


class AgentSurvey(NamedTuple):
    """Everything that is known about an agent without calling its model."""

    name: str
    harness: str
    configured: bool
    can_start: bool
    command: tuple[str, ...]
    # Empty if not found
    path: str
    # Empty if unknown, with the reason in `version_unknown`
    version: str
    version_unknown: str
    # Version that Phasegate was tested with; empty if none
    tested: str
    # A VersionStatus
    version_standing: str
    # How to update; empty if not needed
    update: str
    # Names of existing files below the home folder, and of variables
    sign_in: tuple[str, ...]
    roles: tuple[str, ...]
    stands_in_for: tuple[str, ...]
    # Empty if the configured level is unavailable
    sandbox: str
    sandbox_gaps: tuple[str, ...]
    # Hosts that its jobs can reach; `*` for all
    hosts: tuple[str, ...]
    missing: tuple[MissingPrerequisite, ...]


def load_folder_config(start: Path) -> FolderConfig:
    """Load the configuration that applies to a folder."""
    root = find_main_worktree(start)
    return FolderConfig(root, load_config(root, os.environ).config)


def survey_agents(folder: FolderConfig) -> tuple[AgentSurvey, ...]:
    """Survey every configured agent, then every known program that is not configured."""
    agents = {**folder.config.agents, **_unconfigured_agents(folder.config)}
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        versions = dict(
            zip(
                agents,
                pool.map(lambda agent: read_agent_version(folder, agent), agents.values()),
                strict=True,
            )
        )

    roles = _roles_by_agent(folder)
    return tuple(
        _survey_agent(folder, name, agent, versions[name], roles) for name, agent in agents.items()
    )


def _unconfigured_agents(config: Config) -> dict[str, AgentSettings]:
    used = {agent.harness for agent in config.agents.values()}
    return {
        name: agent
        for name, agent in list_builtin_agents().items()
        if agent.harness not in used and name not in config.agents
    }


def _survey_agent(
    folder: FolderConfig,
    name: str,
    agent: AgentSettings,
    version: ProgramVersion,
    roles: Mapping[str, tuple[str, ...]],
) -> AgentSurvey:
    """Collect program, version, sign-in, sandbox and roles of an agent."""
    row = resolve_harness_row(agent.harness, agent.command)
    sign_in = tuple(_find_sign_ins(agent, row))
    level, problem = _choose_level(folder.config, agent)
    tested = row.tested_version if row and agent.harness != ACP else ""
    standing = compare_version(version.number, row.min_version if row else "", tested)
    is_outdated = standing in (VersionStatus.OLDER, VersionStatus.TOO_OLD)
    update = row.install_instruction if row and is_outdated else ""

    missing = [*_missing_program(folder, agent, row)]
    if standing is VersionStatus.TOO_OLD:
        missing.append(MissingPrerequisite(f"version {version.number} is too old", update))
    missing += _missing_sign_in(agent, row, sign_in)
    if problem:
        missing.append(
            MissingPrerequisite(problem, "install bubblewrap, or set another `sandbox` in [run]")
        )

    return AgentSurvey(
        name=name,
        harness=str(agent.harness),
        configured=name in folder.config.agents,
        can_start=can_start_agent(folder, agent),
        command=get_agent_command(agent),
        path=find_agent_program(folder, agent) or "",
        version=version.number,
        version_unknown=version.problem,
        tested=tested,
        version_standing=str(standing),
        update=update,
        sign_in=sign_in,
        roles=roles.get(name, ()),
        stands_in_for=tuple(
            other for other, settings in folder.config.agents.items() if settings.fallback == name
        ),
        sandbox=str(level or ""),
        sandbox_gaps=probe_level(level).gaps if level else (),
        hosts=_reachable_hosts(agent, row or HARNESSES[agent.harness], level),
        missing=tuple(missing),
    )


def _choose_level(config: Config, agent: AgentSettings) -> tuple[SandboxLevel | None, str]:
    """Return the sandbox level of the agent's jobs, or why the configured one is unavailable."""
    sandbox = config.run.sandbox
    wanted = None if sandbox is SandboxMode.AUTO else SandboxLevel(sandbox.value)
    try:
        return choose_level(wanted, needs_network=agent.harness != SCRIPTED), ""
    except EnvironmentUnavailable as error:
        return None, error.message


def _reachable_hosts(
    agent: AgentSettings, row: HarnessRow, level: SandboxLevel | None
) -> tuple[str, ...]:
    if agent.harness == SCRIPTED or level is None:
        return ()
    policy = EgressPolicy(row, agent.allowed_hosts, ())
    if can_restrict_hosts(level, not policy.allows_everything):
        return policy.list_hosts(level)
    return (ANY_HOST,)


def _find_sign_ins(agent: AgentSettings, row: HarnessRow | None) -> Iterator[str]:
    keys = (*(row.key_variables if row else ()), *filter(is_secret_name, agent.env))
    yield from (name for name in dict.fromkeys(keys) if os.environ.get(name))
    if row and agent.share_sign_in:
        yield from (f"~/{name}" for name in row.sign_in_files if (Path.home() / name).is_file())


def _missing_program(
    folder: FolderConfig, agent: AgentSettings, row: HarnessRow | None
) -> Iterator[MissingPrerequisite]:
    """Yield the missing programs that an agent's command needs."""
    if agent.harness == SCRIPTED:
        scenario = agent.scenario or next(iter(agent.command), "")
        if not scenario or not (folder.root / scenario).is_file():
            yield MissingPrerequisite(
                f"its scenario {scenario or 'is not set'}".strip(),
                "set `scenario` to a file that exists",
            )
    elif find_agent_program(folder, agent) is None:
        remedy = "install it, or fix `command` in phasegate.toml"
        if row and not agent.command:
            remedy = row.install_instruction

        yield MissingPrerequisite(
            f"its command {get_agent_command(agent)[0]!r} was not found", remedy
        )


def _missing_sign_in(
    agent: AgentSettings, row: HarnessRow | None, sign_ins: Iterable[str]
) -> Iterator[MissingPrerequisite]:
    if row and not tuple(sign_ins):
        yield MissingPrerequisite(NO_SIGN_IN, row.sign_in_hint)


def find_missing_sign_in(agent: AgentSettings) -> MissingPrerequisite | None:
    """Return the sign-in that an agent's program lacks to reach its model.

    Return None for a custom command, which may authenticate in another way.
    """
    row = resolve_harness_row(agent.harness, agent.command)
    if agent.command and agent.harness != ACP:
        return None
    return next(_missing_sign_in(agent, row, _find_sign_ins(agent, row)), None)


def list_usable_agents(folder: FolderConfig) -> Iterator[str]:
    """Yield the agents that can run jobs here: program, sign-in and sandbox are available."""
    for survey in survey_agents(folder):
        agent = folder.config.agents.get(survey.name)
        can_sign_in = agent is not None and find_missing_sign_in(agent) is None
        missing = [one for one in survey.missing if not (can_sign_in and one.what == NO_SIGN_IN)]
        is_sandboxed = (
            survey.sandbox not in ("", SandboxLevel.NONE)
            or folder.config.run.sandbox is SandboxMode.NONE
        )
        if survey.can_start and is_sandboxed and not missing:
            yield survey.name


def _roles_by_agent(folder: FolderConfig) -> dict[str, tuple[str, ...]]:
    """Return the roles, and the phases with their own entry, that each agent serves."""
    names = tuple(find_startable_agents(folder))
    roles = folder.config.roles
    phases = [role for role in roles if role not in PROMPT_PHASES]
    serves = {
        role: choose_agent_for_role(role, _PHASE_BY_ROLE.get(role, ""), roles, names)
        for role in PROMPT_PHASES
    }
    serves |= {phase: choose_agent_for_role("plan", phase, roles, names) for phase in phases}

    return {name: tuple(role for role, by in serves.items() if by == name) for name in names}
