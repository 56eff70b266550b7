"""Check values against each other, after each one was validated by its type.

Each problem names the key at fault.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from phasegate.config.settings import (
    MAX_ATTEMPTS,
    Config,
    FleetSettings,
    NotifySettings,
    PathSettings,
    StorageSettings,
)
from phasegate.core.agents.harnesses import ACP, COMMAND
from phasegate.core.credentials import find_server_key_refusal
from phasegate.core.detection.project_kind import LANGUAGE_TITLES
from phasegate.core.workflow.workflow_phases import (
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
    """A key, the problem with its value, and the remedy."""

    key: tuple[str, ...]
    message: str
    remedy: str


def suggest_name(word: str, known: Collection[str]) -> str:
    """Suggest the closest known name, or list all of them."""
    spelt = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), spelt, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{spelt[close[0]]}`?"
    return f"available: {', '.join(known) or 'none'}"


def to_variable_name(name: str) -> str:
    """Convert a name to the form that it has in an environment variable."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def find_config_problems(config: Config) -> Iterator[ConfigProblem]:
    """Yield every inconsistency between the values."""
    yield from _check_names(config)
    yield from _check_agents(config)
    yield from _check_check_tables(config)
    yield from _check_workflows(config)
    yield from _check_roles(config)
    yield from _check_competing_agents(config)
    yield from _check_phases(config)
    yield from _check_paths(config.paths)
    yield from _check_storage(config.storage)
    yield from _check_fleet(config.fleet)
    yield from _check_notify(config.notify)


def _check_names(config: Config) -> Iterator[ConfigProblem]:
    """Yield names that are invalid, or that share an environment variable."""
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
                what = f"`{name}` and another name map to the same environment variable"
                yield ConfigProblem((table, name), what, "rename one of them")


def _check_agents(config: Config) -> Iterator[ConfigProblem]:
    """Yield agents without a command and fallbacks that do not exist."""
    for name, agent in config.agents.items():
        if agent.harness in _HARNESSES_WITHOUT_DEFAULT_COMMAND and not agent.command:
            what = f"the harness `{agent.harness}` needs a command"
            if agent.harness == ACP:
                by_name = ", or use a name from the ACP agent registry"
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
    """Yield check tables with an unknown profile, or an invalid or repeated root."""
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
                "write a relative path without .. and without a trailing slash",
            )

    roots = [table.root for table in config.checks.values() if table.root is not None]
    for name, table in config.checks.items():
        if roots.count(table.root or "") > 1 and table.root is not None:
            yield ConfigProblem(
                ("checks", name, "root"),
                f"another table also has the root `{table.root}`",
                "keep one of them",
            )


def _check_workflows(config: Config) -> Iterator[ConfigProblem]:
    """Yield invalid phase lists and nouns of the configured workflows."""
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

            # An unknown key defines a new phase, which is only reviewed. A typo must not do that.
            if meant:
                yield ConfigProblem(
                    ("workflows", name, "phases"),
                    f"there is no phase {key}",
                    f"did you mean `{meant[0]}`?",
                )

        if workflow.noun is not None and not is_printable(workflow.noun):
            yield ConfigProblem(
                ("workflows", name, "noun"),
                "a noun must be printable ASCII",
                "it is shown in the suggested next steps",
            )

        if (
            workflow.noun is not None
            and DESCRIPTION_NOUNS.get(name, workflow.noun) != workflow.noun
        ):
            yield ConfigProblem(
                ("workflows", name, "noun"),
                f"the shipped workflow `{name}` already has a noun",
                "remove the key, or rename your workflow",
            )


def _check_roles(config: Config) -> Iterator[ConfigProblem]:
    """Yield unknown roles, and roles with an agent that is not configured."""
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


def _check_competing_agents(config: Config) -> Iterator[ConfigProblem]:
    """Yield unknown or too many competing agents."""
    for name in config.run.competing_agents:
        if name not in config.agents:
            what = f"no agent `{name}` is configured"
            remedy = suggest_name(name, config.agents)
            yield ConfigProblem(("run", "competing_agents"), what, remedy)

    known = [config.agents[name] for name in config.run.competing_agents if name in config.agents]
    count = sum(agent.attempts_per_package for agent in known)
    if count > MAX_ATTEMPTS:
        yield ConfigProblem(
            ("run", "competing_agents"),
            f"{count} attempts per package are too many",
            f"use at most {MAX_ATTEMPTS}",
        )

    if len(config.run.competing_agents) == 1:
        remedy = "name two or more agents, or set attempts_per_package in its table"
        yield ConfigProblem(("run", "competing_agents"), "a single agent cannot compete", remedy)


def _check_phases(config: Config) -> Iterator[ConfigProblem]:
    """Yield phase tables without a workflow, and artifacts outside the feature."""
    known = _collect_phase_keys(config)
    for key, phase in config.phases.items():
        if key not in known:
            yield ConfigProblem(
                ("phases", key), f"no workflow has the phase `{key}`", suggest_name(key, known)
            )

        for artifact in phase.required_artifacts or ():
            if not _is_safe_relative_path(artifact):
                what = f"`{artifact}` is not below the feature's folder"
                yield ConfigProblem(
                    ("phases", key, "required_artifacts"), what, "write a relative path without .."
                )


def _check_paths(paths: PathSettings) -> Iterator[ConfigProblem]:
    """Yield paths outside the repository, and paths that are set twice."""
    values = {name: str(getattr(paths, name)).rstrip("/") for name in paths.__struct_fields__}
    for name, path in values.items():
        if not _is_safe_relative_path(path):
            what = f"`{path}` is not below the repository's root"
            yield ConfigProblem(
                ("paths", name), what, "write a relative path without .. and not in .git"
            )
        elif [*values.values()].count(path) > 1:
            yield ConfigProblem(
                ("paths", name),
                f"two settings have the path `{path}`",
                "use a different path for each",
            )


def _check_storage(storage: StorageSettings) -> Iterator[ConfigProblem]:
    """Yield the problems of [storage]: an invalid address, incomplete or forbidden credentials."""
    if storage.url and not _BUCKET.fullmatch(storage.url):
        yield ConfigProblem(
            ("storage", "url"),
            f"`{storage.url}` is not s3://BUCKET/PREFIX",
            "set the address of an S3 server in `endpoint`",
        )

    if storage.endpoint and not storage.endpoint.startswith(("https://", "http://")):
        what = f"`{storage.endpoint}` is not a server address"
        yield ConfigProblem(
            ("storage", "endpoint"), what, "use a URL such as https://s3.example.org"
        )

    named = [name for name in (storage.access_key_env, storage.secret_key_env) if name]
    if len(named) == 1:
        yield ConfigProblem(
            ("storage", "access_key_env"),
            "an access key and its secret must be set together",
            "set both variables",
        )

    refused = find_server_key_refusal(named, "a bucket")
    if refused is not None:
        yield ConfigProblem(("storage", "access_key_env"), *refused)


def _check_fleet(fleet: FleetSettings) -> Iterator[ConfigProblem]:
    if bool(fleet.tls_cert_file) != bool(fleet.tls_key_file):
        yield ConfigProblem(
            ("fleet", "tls_cert_file"),
            "a certificate and its key must be set together",
            "set both files",
        )

    refused = find_server_key_refusal((fleet.api_key_env,), "a Temporal server")
    if refused is not None:
        yield ConfigProblem(("fleet", "api_key_env"), *refused)


def _check_notify(notify: NotifySettings) -> Iterator[ConfigProblem]:
    """Yield addresses without a scheme. An address may be a secret, so it is not repeated."""
    for number, url in enumerate(notify.urls, 1):
        if not url.startswith("$") and ":" not in url:
            yield ConfigProblem(
                ("notify", "urls"),
                f"address {number} has no scheme",
                "write https://HOST/PATH, mailto:NAME@HOST, or $NAME for a variable",
            )


def _collect_phase_keys(config: Config) -> tuple[str, ...]:
    user_defined = [workflow.phases for workflow in config.workflows.values()]
    all_phases = [*WORKFLOWS.values(), *user_defined]
    return tuple(dict.fromkeys(key for phases in all_phases for key in phases))


def _is_safe_relative_path(path: str) -> bool:
    parts = path.removesuffix("/").split("/")
    return (
        all(part not in ("", ".", "..") for part in parts)
        and parts[0].lower() != ".git"
        and parts[0] != "~"
    )
