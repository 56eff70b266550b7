"""The forge of a project.

Found from its remote and its settings, with a token that nobody else gets to see.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from phasegate.core.forge.address import ForgeAddress, parse_remote_address
from phasegate.core.forge.pull_request import issue_to_description
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.forge.port import Forge
from phasegate.forge.registry import FORGES, ForgeSpec, connect_forge
from phasegate.git import read_credential
from phasegate.sandbox.environment import filter_search_path
from phasegate.sandbox.run_program import find_program, run_program
from phasegate.workspace.remote import Remote, read_remote_url


class ForgeConnection(NamedTuple):
    """A repository at a forge: its API, and its git."""

    forge: Forge
    remote: Remote


def open_forge(project: Project) -> ForgeConnection:
    """The forge that the settings name, or that the remote is at."""
    settings = project.config.forge
    url = read_remote_url(project.repository, settings.remote)

    if not url:
        raise ConfigError(
            f"there is no remote {settings.remote!r}",
            "add it (git remote add), or set remote in [forge] of phasegate.toml",
        )

    told = parse_remote_address(url)
    address = settings.url or (told.url if told else "")
    repository = settings.repository or (told.repository if told else "")
    kind = settings.kind or (told.kind if told else "")

    if not address or not repository or not kind:
        lacking = [
            name
            for name, value in (("kind", kind), ("url", address), ("repository", repository))
            if not value
        ]
        raise ConfigError(
            f"the remote {settings.remote} ({url}) does not say which forge it belongs to",
            f"set {', '.join(lacking)} in [forge] of phasegate.toml",
        )

    row = FORGES[kind]
    token = _find_token(row, settings.token_env, ForgeAddress(address, repository, kind))

    return ForgeConnection(
        connect_forge(kind, address, repository, token), Remote(url, row.git_user, token)
    )


def read_issue_description(project: Project, number: int) -> str:
    """An issue of the forge, as the description of a feature."""
    found = open_forge(project).forge.fetch_issue(number)
    return issue_to_description(found.number, found.title, found.text)


def _find_token(row: ForgeSpec, token_variable: str, address: ForgeAddress) -> str:
    """From the environment, from git's credential helper, or from the forge's own program.

    A repository's settings name the host and the variable. So what is well known as the token of
    one host is sent to no other: whoever is given a repository would give that token away.
    """
    known = {name for one in FORGES.values() for name in one.token_variables}

    if token_variable in known and (
        token_variable not in row.token_variables or address.host not in row.token_hosts
    ):
        raise ConfigError(
            f"{token_variable} is not for {address.host}",
            "keep its token in a variable of another name: token_env",
        )

    names = (
        (token_variable,)
        if token_variable
        else row.token_variables
        if address.host in row.token_hosts
        else ()
    )

    for name in names:
        if value := os.environ.get(name, "").strip():
            return _validate_token(value, name)

    if token_variable:
        raise EnvironmentUnavailable(
            f"{token_variable} is not set", "it holds the token of the forge: [forge] token_env"
        )

    if found := read_credential(address.url) or _read_token_from_program(row, address):
        return _validate_token(found, "the credential helper")

    if names:
        wanted = f"set {' or '.join(names)}"
    else:
        wanted = "set token_env in [forge], and that variable"

    raise EnvironmentUnavailable(
        f"there is no token for {address.url}", f"{wanted}; or sign in with git"
    )


def _validate_token(value: str, source: str) -> str:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise EnvironmentUnavailable(f"{source} holds no valid token", "set it again")
    return value


def _read_token_from_program(row: ForgeSpec, address: ForgeAddress) -> str:
    path = filter_search_path(os.environ.get("PATH", ""))
    if row.token_command:
        program = find_program(row.token_command[0], path=path)
    else:
        program = None

    if program is None:
        return ""

    arguments = [part.format(host=address.host) for part in row.token_command[1:]]
    keep = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    said = run_program(
        [program, *arguments], cwd=Path("/"), env={**keep, "PATH": path}, timeout_s=20
    )
    if said.ok:
        return said.stdout.decode(errors="replace").strip()

    return ""
