"""What there is of agents here: programs, versions, sign-ins, roles, and the sandbox that each will have.

Of keys and sign-ins only the names are looked at: whether a variable is set, whether a file is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.programs.command import own_files
from phasegate.agents.run.proxy import Outward
from phasegate.agents.run.secret_values import names_a_secret
from phasegate.agents.run.version import ProgramVersion, ask_version
from phasegate.config import Agent, Config, load
from phasegate.config.acp_registry import row_of
from phasegate.config.cross_checks import PROMPT_PHASES
from phasegate.config.settings import Sandbox
from phasegate.core.agents.harnesses import ACP, ROWS, SCRIPTED, HarnessRow
from phasegate.core.agents.hosts import ANY
from phasegate.core.agents.roles import agent_for_role
from phasegate.core.text.versions import VersionStanding, standing_of_version
from phasegate.engine.project.agents import can_start, command_of, known_agents, program_of, staff
from phasegate.errors import EnvironmentUnavailable
from phasegate.sandbox.probe import bounds_hosts, choose, holding
from phasegate.sandbox.request import Level
from phasegate.storage.location import main_tree

MOST_AT_ONCE = 4
NO_SIGN_IN = "neither a sign-in nor a key was found"
_PHASES = {"implement": "06-implementation", "review": "06-implementation"}  # where a role has but one
_NO_VERSION = ProgramVersion(why_not="it has no way to say it")


class Workshop(NamedTuple):
    """A folder and its configuration; it need not be a repository."""

    root: Path
    config: Config


class Missing(NamedTuple):
    """Something that an agent lacks, and how to get it."""

    what: str
    remedy: str


class Surveyed(NamedTuple):
    """All that is known of one agent without asking its model anything."""

    name: str
    harness: str
    configured: bool
    can_start: bool
    command: tuple[str, ...]
    path: str  # empty: not found
    version: str  # empty: `version_unknown` says why
    version_unknown: str
    tested: str  # empty: it was never run by us
    version_standing: str  # tested, older or newer than tested, too old, or unknown
    update: str  # how to get a newer one; empty: there is no need
    sign_in: tuple[str, ...]  # names of what is there: files below the home folder, variables
    roles: tuple[str, ...]
    stands_in_for: tuple[str, ...]
    sandbox: str  # empty: the configured level does not hold
    sandbox_gaps: tuple[str, ...]
    hosts: tuple[str, ...]  # that its jobs can reach; `*`: the network is open to it
    missing: tuple[Missing, ...]


def open_workshop(start: Path) -> Workshop:
    """The configuration around a folder."""
    root = main_tree(start)
    return Workshop(root, load(root, os.environ).config)


def survey(shop: Workshop) -> tuple[Surveyed, ...]:
    """Every configured agent, then every program that we know and nobody configured."""
    agents = {**shop.config.agents, **_not_configured(shop.config)}
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        versions = dict(zip(agents, pool.map(lambda agent: _version(shop, agent), agents.values()), strict=True))
    roles = _roles(shop)
    return tuple(_surveyed(shop, name, agent, versions[name], roles) for name, agent in agents.items())


def _not_configured(config: Config) -> dict[str, Agent]:
    used = {agent.harness for agent in config.agents.values()}
    return {
        name: agent for name, agent in known_agents().items() if agent.harness not in used and name not in config.agents
    }


def _surveyed(
    shop: Workshop, name: str, agent: Agent, version: ProgramVersion, roles: Mapping[str, tuple[str, ...]]
) -> Surveyed:
    known = row_of(agent.harness, agent.command)
    sign_in = tuple(_sign_in(agent, known))
    level, why_not = _level(shop.config, agent)
    tested = known.tested if known and agent.harness != ACP else ""
    standing = standing_of_version(version.number, known.oldest if known else "", tested)
    update = known.install if known and standing in (VersionStanding.OLDER, VersionStanding.TOO_OLD) else ""
    missing = (
        *_missing_program(shop, agent, known),
        *([Missing(f"version {version.number} is too old", update)] if standing is VersionStanding.TOO_OLD else ()),
        *_missing_sign_in(agent, known, sign_in),
        *((Missing(why_not, "install bubblewrap, or set another `sandbox` in [run]"),) if why_not else ()),
    )
    return Surveyed(
        name=name,
        harness=str(agent.harness),
        configured=name in shop.config.agents,
        can_start=can_start(shop, agent),
        command=command_of(agent),
        path=program_of(shop, agent) or "",
        version=version.number,
        version_unknown=version.why_not,
        tested=tested,
        version_standing=str(standing),
        update=update,
        sign_in=sign_in,
        roles=roles.get(name, ()),
        stands_in_for=tuple(one for one, other in shop.config.agents.items() if other.fallback == name),
        sandbox=str(level or ""),
        sandbox_gaps=holding(level).gaps if level else (),
        hosts=_hosts(agent, known or ROWS[agent.harness], level),
        missing=missing,
    )


def _version(shop: Workshop, agent: Agent) -> ProgramVersion:
    """Asked of the program itself, in the strongest cage there is: it needs neither network nor anything of ours."""
    arguments, path = ROWS[agent.harness].version_arguments, program_of(shop, agent)
    if path is None:
        return ProgramVersion(why_not="it was not found")
    if not arguments:
        return _NO_VERSION
    _, *own = own_files(shop.root, agent.command or command_of(agent)[:1])
    return ask_version((path, *own, *arguments), choose(None, needs_network=False))


def _level(config: Config, agent: Agent) -> tuple[Level | None, str]:
    """The level that a job of this agent will have here, or why it cannot have the one that was asked for."""
    sandbox = config.run.sandbox
    wanted = None if sandbox is Sandbox.AUTO else Level(sandbox.value)
    try:
        return choose(wanted, needs_network=agent.harness != SCRIPTED), ""
    except EnvironmentUnavailable as error:
        return None, error.message


def _hosts(agent: Agent, row: HarnessRow, level: Level | None) -> tuple[str, ...]:
    if agent.harness == SCRIPTED or level is None:
        return ()
    is_known = Outward(row, agent.hosts, ()).is_bounded
    return (*row.hosts, *agent.hosts) if bounds_hosts(level, is_known) else (ANY,)


def _sign_in(agent: Agent, known: HarnessRow | None) -> Iterator[str]:
    keys = (*(known.keys if known else ()), *filter(names_a_secret, agent.env))
    yield from (name for name in dict.fromkeys(keys) if os.environ.get(name))
    if known and agent.sign_in:
        yield from (f"~/{name}" for name in known.sign_in_files if (Path.home() / name).is_file())


def _missing_program(shop: Workshop, agent: Agent, known: HarnessRow | None) -> Iterator[Missing]:
    if agent.harness == SCRIPTED:
        scenario = agent.scenario or next(iter(agent.command), "")
        if not scenario or not (shop.root / scenario).is_file():
            yield Missing(f"its scenario {scenario or 'is not set'}".strip(), "set `scenario` to a file that exists")
    elif program_of(shop, agent) is None:
        own = f"its command {command_of(agent)[0]!r} is not there"
        remedy = known.install if known and not agent.command else "install it, or fix `command` in phasegate.toml"
        yield Missing(own, remedy)


def _missing_sign_in(agent: Agent, known: HarnessRow | None, found: Iterable[str]) -> Iterator[Missing]:
    if known and not tuple(found):
        yield Missing(NO_SIGN_IN, known.sign_in)


def lacks_a_sign_in(agent: Agent) -> Missing | None:
    """What an agent's own program lacks to reach its model. A command of the person's may know another way to it."""
    known = row_of(agent.harness, agent.command)
    if agent.command and agent.harness != ACP:
        return None
    return next(_missing_sign_in(agent, known, _sign_in(agent, known)), None)


def able_agents(shop: Workshop) -> Iterator[str]:
    """The agents that can do a job here: the program answers, somebody is signed in, and the sandbox holds."""
    for one in survey(shop):
        agent = shop.config.agents.get(one.name)
        knows_a_way = agent is not None and lacks_a_sign_in(agent) is None
        missing = [each for each in one.missing if not (knows_a_way and each.what == NO_SIGN_IN)]
        is_caged = one.sandbox not in ("", Level.NONE) or shop.config.run.sandbox is Sandbox.NONE
        if one.can_start and is_caged and not missing:
            yield one.name


def _roles(shop: Workshop) -> dict[str, tuple[str, ...]]:
    """Which roles, and which phases with an entry of their own, each agent serves."""
    names = tuple(staff(shop))
    roles = shop.config.roles
    phases = [role for role in roles if role not in PROMPT_PHASES]
    serves = {role: agent_for_role(role, _PHASES.get(role, ""), roles, names) for role in PROMPT_PHASES}
    serves |= {phase: agent_for_role("plan", phase, roles, names) for phase in phases}
    return {name: tuple(role for role, by in serves.items() if by == name) for name in names}
