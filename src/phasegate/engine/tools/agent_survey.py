"""What there is of agents here.

Programs, versions, sign-ins, roles, and the sandbox that each will have.

Of keys and sign-ins only the names are looked at: whether a variable is set, whether a file is
there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.programs.command import resolve_repository_files
from phasegate.agents.run.proxy import EgressPolicy
from phasegate.agents.run.secret_values import is_secret_name
from phasegate.agents.run.version import ProgramVersion, probe_version
from phasegate.config import AgentSettings, Config, load_config
from phasegate.config.acp_registry import resolve_harness_row
from phasegate.config.cross_checks import PROMPT_PHASES
from phasegate.config.settings import SandboxMode
from phasegate.core.agents.harnesses import ACP, HARNESSES, SCRIPTED, HarnessRow
from phasegate.core.agents.hosts import ANY_HOST
from phasegate.core.agents.roles import choose_agent_for_role
from phasegate.core.text.versions import VersionStatus, compare_version
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
# Where a role has but one
_PHASE_BY_ROLE = {"implement": "06-implementation", "review": "06-implementation"}
_NO_VERSION = ProgramVersion(problem="it has no way to say it")


class FolderConfig(NamedTuple):
    """A folder and its configuration; it need not be a repository."""

    root: Path
    config: Config


class MissingPrerequisite(NamedTuple):
    """Something that an agent lacks, and how to get it."""

    what: str
    remedy: str


class AgentSurvey(NamedTuple):
    """All that is known of one agent without asking its model anything."""

    name: str
    harness: str
    configured: bool
    can_start: bool
    command: tuple[str, ...]
    # Empty: not found
    path: str
    # Empty: `version_unknown` says why
    version: str
    version_unknown: str
    # Empty: it was never run by us
    tested: str
    # Tested, older or newer than tested, too old, or unknown
    version_standing: str
    # How to get a newer one; empty: there is no need
    update: str
    # Names of what is there: files below the home folder, variables
    sign_in: tuple[str, ...]
    roles: tuple[str, ...]
    stands_in_for: tuple[str, ...]
    # Empty: the configured level does not hold
    sandbox: str
    sandbox_gaps: tuple[str, ...]
    # That its jobs can reach; `*`: the network is open to it
    hosts: tuple[str, ...]
    missing: tuple[MissingPrerequisite, ...]


def load_folder_config(start: Path) -> FolderConfig:
    """The configuration around a folder."""
    root = find_main_worktree(start)
    return FolderConfig(root, load_config(root, os.environ).config)


def survey_agents(folder: FolderConfig) -> tuple[AgentSurvey, ...]:
    """Every configured agent, then every program that we know and nobody configured."""
    agents = {**folder.config.agents, **_unconfigured_agents(folder.config)}
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        versions = dict(
            zip(
                agents,
                pool.map(lambda agent: _read_version(folder, agent), agents.values()),
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
    known = resolve_harness_row(agent.harness, agent.command)
    sign_in = tuple(_find_sign_ins(agent, known))
    level, why_not = _choose_level(folder.config, agent)
    if known and agent.harness != ACP:
        tested = known.tested_version
    else:
        tested = ""

    standing = compare_version(version.number, known.min_version if known else "", tested)
    if known and standing in (VersionStatus.OLDER, VersionStatus.TOO_OLD):
        update = known.install_instruction
    else:
        update = ""

    missing = (
        *_missing_program(folder, agent, known),
        *(
            [MissingPrerequisite(f"version {version.number} is too old", update)]
            if standing is VersionStatus.TOO_OLD
            else ()
        ),
        *_missing_sign_in(agent, known, sign_in),
        *(
            (MissingPrerequisite(why_not, "install bubblewrap, or set another `sandbox` in [run]"),)
            if why_not
            else ()
        ),
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
            one for one, other in folder.config.agents.items() if other.fallback == name
        ),
        sandbox=str(level or ""),
        sandbox_gaps=probe_level(level).gaps if level else (),
        hosts=_reachable_hosts(agent, known or HARNESSES[agent.harness], level),
        missing=missing,
    )


def _read_version(folder: FolderConfig, agent: AgentSettings) -> ProgramVersion:
    """Asked of the program itself, in the strongest cage there is.

    It needs neither network nor anything of ours.
    """
    arguments = HARNESSES[agent.harness].version_arguments
    path = find_agent_program(folder, agent)
    if path is None:
        return ProgramVersion(problem="it was not found")
    if not arguments:
        return _NO_VERSION

    _, *own = resolve_repository_files(folder.root, agent.command or get_agent_command(agent)[:1])
    return probe_version((path, *own, *arguments), choose_level(None, needs_network=False))


def _choose_level(config: Config, agent: AgentSettings) -> tuple[SandboxLevel | None, str]:
    """The level that a job of this agent will have here, or why it cannot have the one that was
    asked for.
    """
    sandbox = config.run.sandbox
    if sandbox is SandboxMode.AUTO:
        wanted = None
    else:
        wanted = SandboxLevel(sandbox.value)

    try:
        return choose_level(wanted, needs_network=agent.harness != SCRIPTED), ""
    except EnvironmentUnavailable as error:
        return None, error.message


def _reachable_hosts(
    agent: AgentSettings, row: HarnessRow, level: SandboxLevel | None
) -> tuple[str, ...]:
    if agent.harness == SCRIPTED or level is None:
        return ()
    is_known = EgressPolicy(row, agent.allowed_hosts, ()).has_known_hosts
    if can_restrict_hosts(level, is_known):
        return (*row.hosts, *agent.allowed_hosts)
    return (ANY_HOST,)


def _find_sign_ins(agent: AgentSettings, row: HarnessRow | None) -> Iterator[str]:
    keys = (*(row.key_variables if row else ()), *filter(is_secret_name, agent.env))
    yield from (name for name in dict.fromkeys(keys) if os.environ.get(name))
    if row and agent.share_sign_in:
        yield from (f"~/{name}" for name in row.sign_in_files if (Path.home() / name).is_file())


def _missing_program(
    folder: FolderConfig, agent: AgentSettings, row: HarnessRow | None
) -> Iterator[MissingPrerequisite]:
    if agent.harness == SCRIPTED:
        scenario = agent.scenario or next(iter(agent.command), "")
        if not scenario or not (folder.root / scenario).is_file():
            yield MissingPrerequisite(
                f"its scenario {scenario or 'is not set'}".strip(),
                "set `scenario` to a file that exists",
            )
    elif find_agent_program(folder, agent) is None:
        own = f"its command {get_agent_command(agent)[0]!r} is not there"
        if row and not agent.command:
            remedy = row.install_instruction
        else:
            remedy = "install it, or fix `command` in phasegate.toml"

        yield MissingPrerequisite(own, remedy)


def _missing_sign_in(
    agent: AgentSettings, row: HarnessRow | None, found: Iterable[str]
) -> Iterator[MissingPrerequisite]:
    if row and not tuple(found):
        yield MissingPrerequisite(NO_SIGN_IN, row.sign_in_hint)


def find_missing_sign_in(agent: AgentSettings) -> MissingPrerequisite | None:
    """What an agent's own program lacks to reach its model.

    A command of the person's may know another way to it.
    """
    known = resolve_harness_row(agent.harness, agent.command)
    if agent.command and agent.harness != ACP:
        return None
    return next(_missing_sign_in(agent, known, _find_sign_ins(agent, known)), None)


def list_usable_agents(folder: FolderConfig) -> Iterator[str]:
    """The agents that can do a job here.

    The program answers, somebody is signed in, and the sandbox holds.
    """
    for one in survey_agents(folder):
        agent = folder.config.agents.get(one.name)
        knows_a_way = agent is not None and find_missing_sign_in(agent) is None
        missing = [each for each in one.missing if not (knows_a_way and each.what == NO_SIGN_IN)]
        is_caged = (
            one.sandbox not in ("", SandboxLevel.NONE)
            or folder.config.run.sandbox is SandboxMode.NONE
        )
        if one.can_start and is_caged and not missing:
            yield one.name


def _roles_by_agent(folder: FolderConfig) -> dict[str, tuple[str, ...]]:
    """Which roles, and which phases with an entry of their own, each agent serves."""
    names = tuple(find_startable_agents(folder))
    roles = folder.config.roles
    phases = [role for role in roles if role not in PROMPT_PHASES]
    serves = {
        role: choose_agent_for_role(role, _PHASE_BY_ROLE.get(role, ""), roles, names)
        for role in PROMPT_PHASES
    }
    serves |= {phase: choose_agent_for_role("plan", phase, roles, names) for phase in phases}

    return {name: tuple(role for role, by in serves.items() if by == name) for name in names}
