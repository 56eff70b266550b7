"""What must fit together although each value is sound by itself. Each check names the key that is to blame."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from phasegate.config.settings import MOST_ATTEMPTS, Config, Paths, Storage
from phasegate.core.agents.harnesses import ACP, COMMAND, ROWS
from phasegate.core.detection.project_kind import TITLES
from phasegate.core.workflow.workflows import NOUNS, WORKFLOWS, invalid_phases, is_printable

PROMPT_PHASES = ("plan", "challenge", "implement", "review", "archive")
PHASE_KEYS = tuple(dict.fromkeys(key for phases in WORKFLOWS.values() for key in phases))
_NAME = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?")
_NEED_COMMAND = (COMMAND, ACP)


class Problem(NamedTuple):
    """A key, what is wrong with it, and what to do."""

    key: tuple[str, ...]
    what: str
    remedy: str


def suggestion(word: str, known: Collection[str]) -> str:
    """The known word that was probably meant, or all of them."""
    spelt = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), spelt, n=1, cutoff=0.6)
    return f"did you mean `{spelt[close[0]]}`?" if close else f"known are: {', '.join(known) or 'none yet'}"


def as_variable(name: str) -> str:
    """A name as it can stand in the name of an environment variable."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def problems(config: Config) -> Iterator[Problem]:
    """Everything that does not fit together."""
    yield from _names(config)
    yield from _agents(config)
    yield from _checks(config)
    yield from _workflows(config)
    yield from _roles(config)
    yield from _contest(config)
    yield from _phases(config)
    yield from _paths(config.paths)
    yield from _storage(config.storage)


def _names(config: Config) -> Iterator[Problem]:
    for table, names in (("agents", config.agents), ("workflows", config.workflows), ("checks", config.checks)):
        variables = [as_variable(name) for name in names]
        for name in names:
            if not _NAME.fullmatch(name):
                remedy = "use letters and digits, joined by single hyphens, dots or underscores"
                yield Problem((table, name), f"{name!r} is not a valid name", remedy)
            if variables.count(as_variable(name)) > 1:
                what = f"`{name}` and another name are the same in environment variables"
                yield Problem((table, name), what, "rename one of them")


def _agents(config: Config) -> Iterator[Problem]:
    for name, agent in config.agents.items():
        if agent.harness in _NEED_COMMAND and not agent.command:
            what = f"the harness `{agent.harness}` needs a command"
            by_name = ", or name the agent as the registry of ACP agents does" if agent.harness == ACP else ""
            remedy = f'set command = ["program"] in [agents.{name}]{by_name}'
            yield Problem(("agents", name, "harness"), what, remedy)
        others = [other for other in config.agents if other != name]
        if agent.fallback is not None and agent.fallback not in others:
            what = f"`{agent.fallback}` is not another configured agent"
            yield Problem(("agents", name, "fallback"), what, suggestion(agent.fallback, others))


def _checks(config: Config) -> Iterator[Problem]:
    known = [name for name in TITLES if name]
    for name, table in config.checks.items():
        if table.root is None and name not in known:
            what = f"there is no profile `{name}`, and the table has no `root`"
            yield Problem(("checks", name), what, suggestion(name, known))
        elif table.root and (not _stays_below(table.root) or table.root.endswith("/")):
            what = f"`{table.root}` is not a folder of the repository"
            yield Problem(("checks", name, "root"), what, "write a relative path without .. and without a slash behind")
    roots = [table.root for table in config.checks.values() if table.root is not None]
    for name, table in config.checks.items():
        if roots.count(table.root or "") > 1 and table.root is not None:
            yield Problem(
                ("checks", name, "root"), f"another table has the root `{table.root}` too", "keep one of them"
            )


def _workflows(config: Config) -> Iterator[Problem]:
    for name, workflow in config.workflows.items():
        wrong = invalid_phases(workflow.phases)
        if wrong:
            yield Problem(("workflows", name, "phases"), wrong, "list keys like 06-implementation, each once")
        for key in workflow.phases:
            meant = [] if key in PHASE_KEYS else get_close_matches(key, PHASE_KEYS, n=1, cutoff=0.9)
            if meant:  # a phase of one's own would only be reviewed: nobody wants that by a slip
                yield Problem(("workflows", name, "phases"), f"there is no phase {key}", f"did you mean `{meant[0]}`?")
        if workflow.noun is not None and not is_printable(workflow.noun):
            yield Problem(("workflows", name, "noun"), "a noun is printable ASCII", "it is shown in next steps")
        if workflow.noun is not None and NOUNS.get(name, workflow.noun) != workflow.noun:
            yield Problem(
                ("workflows", name, "noun"), f"`{name}` has its noun already", "leave it out, or rename yours"
            )


def _roles(config: Config) -> Iterator[Problem]:
    roles = (*PROMPT_PHASES, *_known_phases(config))
    for role, agent in config.roles.items():
        if role not in roles:
            yield Problem(("roles", role), f"unknown role `{role}`", suggestion(role, roles))
        elif agent not in config.agents:
            yield Problem(("roles", role), f"no agent `{agent}` is configured", suggestion(agent, config.agents))


def _contest(config: Config) -> Iterator[Problem]:
    for name in config.run.contest:
        if name not in config.agents:
            what = f"no agent `{name}` is configured"
            yield Problem(("run", "contest"), what, suggestion(name, config.agents))
    count = sum(config.agents[name].attempts for name in config.run.contest if name in config.agents)
    if count > MOST_ATTEMPTS:
        yield Problem(("run", "contest"), f"{count} attempts at a package are too many", f"at most {MOST_ATTEMPTS}")
    if len(config.run.contest) == 1:
        remedy = "name two or more agents, or set attempts in the table of the one"
        yield Problem(("run", "contest"), "one agent alone is no contest", remedy)


def _phases(config: Config) -> Iterator[Problem]:
    known = _known_phases(config)
    for key, phase in config.phases.items():
        if key not in known:
            yield Problem(("phases", key), f"`{key}` is in no workflow", suggestion(key, known))
        for artifact in phase.artifacts or ():
            if not _stays_below(artifact):
                what = f"`{artifact}` is not below the feature's folder"
                yield Problem(("phases", key, "artifacts"), what, "write a relative path without ..")


def _paths(paths: Paths) -> Iterator[Problem]:
    values = {name: str(getattr(paths, name)).rstrip("/") for name in paths.__struct_fields__}
    for name, path in values.items():
        if not _stays_below(path):
            what = f"`{path}` is not below the repository's root"
            yield Problem(("paths", name), what, "write a relative path without .. and not in .git")
        elif [*values.values()].count(path) > 1:
            yield Problem(("paths", name), f"`{path}` is set for two paths", "give each its own")


def _storage(storage: Storage) -> Iterator[Problem]:
    if storage.url and not _BUCKET.fullmatch(storage.url):
        yield Problem(("storage", "url"), f"`{storage.url}` is not s3://BUCKET/PREFIX", "an S3 server is its endpoint")
    if storage.endpoint and not storage.endpoint.startswith(("https://", "http://")):
        what = f"`{storage.endpoint}` is no address of a server"
        yield Problem(("storage", "endpoint"), what, "for instance https://s3.example.org")
    named = [name for name in (storage.access_key_env, storage.secret_key_env) if name]
    if len(named) == 1:
        yield Problem(("storage", "access_key_env"), "an access key and its secret go together", "name both variables")
    known = {key for row in ROWS.values() for key in row.keys}
    for name in known.intersection(named):  # an access key is sent as it is
        yield Problem(("storage", "access_key_env"), f"{name} is not for a bucket", "use a variable of its own")


def _known_phases(config: Config) -> tuple[str, ...]:
    own = [workflow.phases for workflow in config.workflows.values()]
    return tuple(dict.fromkeys(key for phases in [*WORKFLOWS.values(), *own] for key in phases))


def _stays_below(path: str) -> bool:
    parts = path.removesuffix("/").split("/")
    return all(part not in ("", ".", "..") for part in parts) and parts[0].lower() != ".git" and parts[0] != "~"
