"""What must fit together although each value is sound by itself.

Each check names the key that is to blame.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from phasegate.config.settings import MAX_ATTEMPTS, Config, PathSettings, StorageSettings
from phasegate.core.agents.harnesses import ACP, COMMAND, HARNESSES
from phasegate.core.detection.project_kind import LANGUAGE_TITLES
from phasegate.core.workflow.workflows import (
    DESCRIPTION_NOUNS,
    WORKFLOWS,
    find_phases_problem,
    is_printable,
)

PROMPT_PHASES = ("plan", "challenge", "implement", "review", "archive")
PHASE_KEYS = tuple(dict.fromkeys(key for phases in WORKFLOWS.values() for key in phases))
_NAME = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?")
_HARNESSES_WITHOUT_DEFAULT_COMMAND = (COMMAND, ACP)


class ConfigProblem(NamedTuple):
    """A key, what is wrong with it, and what to do."""

    key: tuple[str, ...]
    message: str
    remedy: str


def suggest_name(word: str, known: Collection[str]) -> str:
    """The known word that was probably meant, or all of them."""
    spelt = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), spelt, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{spelt[close[0]]}`?"
    return f"known are: {', '.join(known) or 'none yet'}"


def to_variable_name(name: str) -> str:
    """A name as it can stand in the name of an environment variable."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def find_config_problems(config: Config) -> Iterator[ConfigProblem]:
    """Everything that does not fit together."""
    yield from _check_names(config)
    yield from _check_agents(config)
    yield from _check_check_tables(config)
    yield from _check_workflows(config)
    yield from _check_roles(config)
    yield from _check_contest(config)
    yield from _check_phases(config)
    yield from _check_paths(config.paths)
    yield from _check_storage(config.storage)


def _check_names(config: Config) -> Iterator[ConfigProblem]:
    for table, names in (
        ("agents", config.agents),
        ("workflows", config.workflows),
        ("checks", config.checks),
    ):
        variables = [to_variable_name(name) for name in names]
        for name in names:
            if not _NAME.fullmatch(name):
                remedy = "use letters and digits, joined by single hyphens, dots or underscores"
                yield ConfigProblem((table, name), f"{name!r} is not a valid name", remedy)
            if variables.count(to_variable_name(name)) > 1:
                what = f"`{name}` and another name are the same in environment variables"
                yield ConfigProblem((table, name), what, "rename one of them")


def _check_agents(config: Config) -> Iterator[ConfigProblem]:
    for name, agent in config.agents.items():
        if agent.harness in _HARNESSES_WITHOUT_DEFAULT_COMMAND and not agent.command:
            what = f"the harness `{agent.harness}` needs a command"
            if agent.harness == ACP:
                by_name = ", or name the agent as the registry of ACP agents does"
            else:
                by_name = ""

            remedy = f'set command = ["program"] in [agents.{name}]{by_name}'
            yield ConfigProblem(("agents", name, "harness"), what, remedy)

        others = [other for other in config.agents if other != name]
        if agent.fallback is not None and agent.fallback not in others:
            what = f"`{agent.fallback}` is not another configured agent"
            yield ConfigProblem(
                ("agents", name, "fallback"), what, suggest_name(agent.fallback, others)
            )


def _check_check_tables(config: Config) -> Iterator[ConfigProblem]:
    known = [name for name in LANGUAGE_TITLES if name]
    for name, table in config.checks.items():
        if table.root is None and name not in known:
            what = f"there is no profile `{name}`, and the table has no `root`"
            yield ConfigProblem(("checks", name), what, suggest_name(name, known))
        elif table.root and (not _is_safe_relative_path(table.root) or table.root.endswith("/")):
            what = f"`{table.root}` is not a folder of the repository"
            yield ConfigProblem(
                ("checks", name, "root"),
                what,
                "write a relative path without .. and without a slash behind",
            )

    roots = [table.root for table in config.checks.values() if table.root is not None]
    for name, table in config.checks.items():
        if roots.count(table.root or "") > 1 and table.root is not None:
            yield ConfigProblem(
                ("checks", name, "root"),
                f"another table has the root `{table.root}` too",
                "keep one of them",
            )


def _check_workflows(config: Config) -> Iterator[ConfigProblem]:
    for name, workflow in config.workflows.items():
        wrong = find_phases_problem(workflow.phases)
        if wrong:
            yield ConfigProblem(
                ("workflows", name, "phases"), wrong, "list keys like 06-implementation, each once"
            )

        for key in workflow.phases:
            if key in PHASE_KEYS:
                meant = []
            else:
                meant = get_close_matches(key, PHASE_KEYS, n=1, cutoff=0.9)

            # A phase of one's own would only be reviewed: nobody wants that by a slip
            if meant:
                yield ConfigProblem(
                    ("workflows", name, "phases"),
                    f"there is no phase {key}",
                    f"did you mean `{meant[0]}`?",
                )

        if workflow.noun is not None and not is_printable(workflow.noun):
            yield ConfigProblem(
                ("workflows", name, "noun"),
                "a noun is printable ASCII",
                "it is shown in next steps",
            )

        if (
            workflow.noun is not None
            and DESCRIPTION_NOUNS.get(name, workflow.noun) != workflow.noun
        ):
            yield ConfigProblem(
                ("workflows", name, "noun"),
                f"`{name}` has its noun already",
                "leave it out, or rename yours",
            )


def _check_roles(config: Config) -> Iterator[ConfigProblem]:
    roles = (*PROMPT_PHASES, *_collect_phase_keys(config))
    for role, agent in config.roles.items():
        if role not in roles:
            yield ConfigProblem(
                ("roles", role), f"unknown role `{role}`", suggest_name(role, roles)
            )
        elif agent not in config.agents:
            yield ConfigProblem(
                ("roles", role),
                f"no agent `{agent}` is configured",
                suggest_name(agent, config.agents),
            )


def _check_contest(config: Config) -> Iterator[ConfigProblem]:
    for name in config.run.contest:
        if name not in config.agents:
            what = f"no agent `{name}` is configured"
            yield ConfigProblem(("run", "contest"), what, suggest_name(name, config.agents))

    count = sum(
        config.agents[name].attempts for name in config.run.contest if name in config.agents
    )
    if count > MAX_ATTEMPTS:
        yield ConfigProblem(
            ("run", "contest"),
            f"{count} attempts at a package are too many",
            f"at most {MAX_ATTEMPTS}",
        )

    if len(config.run.contest) == 1:
        remedy = "name two or more agents, or set attempts in the table of the one"
        yield ConfigProblem(("run", "contest"), "one agent alone is no contest", remedy)


def _check_phases(config: Config) -> Iterator[ConfigProblem]:
    known = _collect_phase_keys(config)
    for key, phase in config.phases.items():
        if key not in known:
            yield ConfigProblem(
                ("phases", key), f"`{key}` is in no workflow", suggest_name(key, known)
            )

        for artifact in phase.artifacts or ():
            if not _is_safe_relative_path(artifact):
                what = f"`{artifact}` is not below the feature's folder"
                yield ConfigProblem(
                    ("phases", key, "artifacts"), what, "write a relative path without .."
                )


def _check_paths(paths: PathSettings) -> Iterator[ConfigProblem]:
    values = {name: str(getattr(paths, name)).rstrip("/") for name in paths.__struct_fields__}
    for name, path in values.items():
        if not _is_safe_relative_path(path):
            what = f"`{path}` is not below the repository's root"
            yield ConfigProblem(
                ("paths", name), what, "write a relative path without .. and not in .git"
            )
        elif [*values.values()].count(path) > 1:
            yield ConfigProblem(
                ("paths", name), f"`{path}` is set for two paths", "give each its own"
            )


def _check_storage(storage: StorageSettings) -> Iterator[ConfigProblem]:
    if storage.url and not _BUCKET.fullmatch(storage.url):
        yield ConfigProblem(
            ("storage", "url"),
            f"`{storage.url}` is not s3://BUCKET/PREFIX",
            "an S3 server is its endpoint",
        )

    if storage.endpoint and not storage.endpoint.startswith(("https://", "http://")):
        what = f"`{storage.endpoint}` is no address of a server"
        yield ConfigProblem(("storage", "endpoint"), what, "for instance https://s3.example.org")

    named = [name for name in (storage.access_key_env, storage.secret_key_env) if name]
    if len(named) == 1:
        yield ConfigProblem(
            ("storage", "access_key_env"),
            "an access key and its secret go together",
            "name both variables",
        )

    known = {key for row in HARNESSES.values() for key in row.key_variables}
    # An access key is sent as it is
    for name in known.intersection(named):
        yield ConfigProblem(
            ("storage", "access_key_env"),
            f"{name} is not for a bucket",
            "use a variable of its own",
        )


def _collect_phase_keys(config: Config) -> tuple[str, ...]:
    own = [workflow.phases for workflow in config.workflows.values()]
    return tuple(dict.fromkeys(key for phases in [*WORKFLOWS.values(), *own] for key in phases))


def _is_safe_relative_path(path: str) -> bool:
    parts = path.removesuffix("/").split("/")
    return (
        all(part not in ("", ".", "..") for part in parts)
        and parts[0].lower() != ".git"
        and parts[0] != "~"
    )
