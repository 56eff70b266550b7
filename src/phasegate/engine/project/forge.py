"""The forge of a project: found from its remote and its settings, with a token that nobody else gets to see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from phasegate.core.forge.address import ForgeAddress, read_address
from phasegate.core.forge.pull_request import wish_of_issue
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.forge.port import Forge
from phasegate.forge.registry import ROWS, ForgeRow, forge_at
from phasegate.git import credential_of
from phasegate.sandbox.environment import safe_path
from phasegate.sandbox.run_program import find_program, run
from phasegate.workspace.remote import Remote, remote_url


class AtForge(NamedTuple):
    """A repository at a forge: its API, and its git."""

    forge: Forge
    remote: Remote


def open_forge(project: Project) -> AtForge:
    """The forge that the settings name, or that the remote is at."""
    settings = project.config.forge
    url = remote_url(project.repository, settings.remote)
    if not url:
        raise ConfigError(
            f"there is no remote {settings.remote!r}",
            "add it (git remote add), or set remote in [forge] of phasegate.toml",
        )
    told = read_address(url)
    address = settings.url or (told.url if told else "")
    repository = settings.repository or (told.repository if told else "")
    kind = settings.kind or (told.kind if told else "")
    if not address or not repository or not kind:
        lacking = [name for name, value in (("kind", kind), ("url", address), ("repository", repository)) if not value]
        raise ConfigError(
            f"the remote {settings.remote} ({url}) does not say which forge it belongs to",
            f"set {', '.join(lacking)} in [forge] of phasegate.toml",
        )
    row = ROWS[kind]
    token = _token(row, settings.token_env, ForgeAddress(address, repository, kind))
    return AtForge(forge_at(kind, address, repository, token), Remote(url, row.user, token))


def read_issue(project: Project, number: int) -> str:
    """An issue of the forge, as the description of a feature."""
    found = open_forge(project).forge.issue(number)
    return wish_of_issue(found.number, found.title, found.text)


def _token(row: ForgeRow, named: str, address: ForgeAddress) -> str:
    """From the environment, from git's credential helper, or from the forge's own program.

    A repository's settings name the host and the variable. So what is well known as the token of one host is sent to
    no other: whoever is given a repository would give that token away.
    """
    known = {name for one in ROWS.values() for name in one.tokens}
    if named in known and (named not in row.tokens or address.host not in row.hosts):
        raise ConfigError(
            f"{named} is not for {address.host}", "keep its token in a variable of another name: token_env"
        )
    names = (named,) if named else row.tokens if address.host in row.hosts else ()
    for name in names:
        if value := os.environ.get(name, "").strip():
            return _sound(value, name)
    if named:
        raise EnvironmentUnavailable(f"{named} is not set", "it holds the token of the forge: [forge] token_env")
    if found := credential_of(address.url) or _of_program(row, address):
        return _sound(found, "the credential helper")
    wanted = f"set {' or '.join(names)}" if names else "set token_env in [forge], and that variable"
    raise EnvironmentUnavailable(f"there is no token for {address.url}", f"{wanted}; or sign in with git")


def _sound(value: str, source: str) -> str:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise EnvironmentUnavailable(f"{source} holds no valid token", "set it again")
    return value


def _of_program(row: ForgeRow, address: ForgeAddress) -> str:
    path = safe_path(os.environ.get("PATH", ""))
    program = find_program(row.program[0], path=path) if row.program else None
    if program is None:
        return ""
    arguments = [part.format(host=address.host) for part in row.program[1:]]
    keep = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    said = run([program, *arguments], cwd=Path("/"), env={**keep, "PATH": path}, timeout_s=20)
    return said.stdout.decode(errors="replace").strip() if said.ok else ""
