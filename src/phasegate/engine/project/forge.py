"""Open the forge of a project from its remote and its settings, and find the token for it."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import NamedTuple

from phasegate.core.credentials import find_forge_token_refusal
from phasegate.core.forge.address import ForgeAddress, parse_remote_address
from phasegate.core.forge.pull_decision import issue_to_description
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, EnvironmentUnavailable, StateConflict
from phasegate.forge.port import Forge
from phasegate.forge.registry import FORGES, ForgeSpec, connect_forge
from phasegate.forge.stored_responses import StoredResponses
from phasegate.git import read_credential
from phasegate.sandbox.environment import filter_search_path
from phasegate.sandbox.run_program import find_program, run_program
from phasegate.workspace.repository.remote import Remote, hide_login, read_remote_url

# In the user's state directory: repositories of one token share its rate limit
_RESPONSES_FOLDER = "forge-responses"


class ForgeConnection(NamedTuple):
    """A repository at a forge: its API and its git remote."""

    forge: Forge
    remote: Remote


def open_forge(project: Project) -> ForgeConnection:
    """Open the forge from the settings, or from the URL of the remote."""
    settings = project.config.forge
    address = find_forge_address(project)
    url = read_remote_url(project.repository, settings.remote)
    row = FORGES[address.kind]
    token = _find_token(row, settings.token_env, address, url)

    forge = _connect_once(
        kind=address.kind,
        url=address.url,
        repository=address.repository,
        token=token,
        folder=project.location.state_home / _RESPONSES_FOLDER,
        stop=project.stop,
    )
    return ForgeConnection(forge, Remote(url, row.git_user, token))


def find_forge_address(project: Project) -> ForgeAddress:
    """Return the address of the configured forge; missing parts are read from the remote."""
    settings = project.config.forge
    url = read_remote_url(project.repository, settings.remote)

    if not url:
        raise ConfigError(
            f"there is no remote {settings.remote!r}",
            "add it (git remote add), or set remote in [forge] of phasegate.toml",
        )

    parsed = parse_remote_address(url)
    address = settings.url or (parsed.url if parsed else "")
    repository = settings.repository or (parsed.repository if parsed else "")
    kind = settings.kind or (parsed.kind if parsed else "")

    fields = {"kind": kind, "url": address, "repository": repository}
    missing = [name for name, value in fields.items() if not value]
    if missing:
        raise ConfigError(
            f"the forge of the remote {settings.remote} ({hide_login(url)}) is unknown",
            f"set {', '.join(missing)} in [forge] of phasegate.toml",
        )

    return ForgeAddress(address, repository, kind)


@lru_cache(maxsize=8)
def _connect_once(
    *, kind: str, url: str, repository: str, token: str, folder: Path, stop: Event
) -> Forge:
    """Return the client of a forge, which all steps of a process share."""
    return connect_forge(
        kind,
        url,
        repository,
        token,
        store=StoredResponses(folder, url, token),
        wait=stop.wait,
    )


def read_issue_description(project: Project, number: int) -> str:
    """Return the text of an issue as the description of a feature."""
    issue = open_forge(project).forge.fetch_issue(number)
    if issue.is_pull:
        raise StateConflict(f"#{number} is a pull request, not an issue", "give an issue's number")
    if not issue.is_open:
        raise StateConflict(f"issue #{number} is closed", "reopen it on the forge, then run again")

    return issue_to_description(issue.number, issue.title, issue.text)


def _find_token(row: ForgeSpec, token_variable: str, address: ForgeAddress, remote: str) -> str:
    """Find the token in the environment, git's credential helper or the forge's own program.

    The remote gets the same token as the API. `core.credentials` decides which variable may go
    where: otherwise the settings of a repository could steal the token of another host.
    """
    names: tuple[str, ...] = ()
    if token_variable:
        names = (token_variable,)
    elif address.host in row.token_hosts:
        names = row.token_variables

    hosts = {
        name: forge.token_hosts if forge is row else ()
        for forge in FORGES.values()
        for name in forge.token_variables
    }
    refused = find_forge_token_refusal(next(iter(names), ""), address.url, remote, hosts)
    if refused is not None:
        raise ConfigError(*refused)

    for name in names:
        value = os.environ.get(name, "").strip()
        if value:
            return _validate_token(value, name)

    if token_variable:
        raise EnvironmentUnavailable(
            f"{token_variable} is not set",
            "token_env in [forge] names it: set it to the forge's token",
        )

    token = read_credential(address.url) or _read_token_from_program(row, address)
    if token:
        return _validate_token(token, "the credential helper")

    hint = "set token_env in [forge], and that variable"
    if names:
        hint = f"set {' or '.join(names)}"

    raise EnvironmentUnavailable(
        f"there is no token for {address.url}", f"{hint}; or sign in with git"
    )


def _validate_token(value: str, source: str) -> str:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise EnvironmentUnavailable(f"{source} has no valid token", "set a new token")
    return value


def _read_token_from_program(row: ForgeSpec, address: ForgeAddress) -> str:
    """Return the token that a program such as `gh` prints; empty if none."""
    if not row.token_command:
        return ""

    path = filter_search_path(os.environ.get("PATH", ""))
    program = find_program(row.token_command[0], path=path)
    if program is None:
        return ""

    arguments = [part.format(host=address.host) for part in row.token_command[1:]]
    env = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    result = run_program(
        [program, *arguments], cwd=Path("/"), env={**env, "PATH": path}, timeout_s=20
    )
    if result.ok:
        return result.stdout.decode(errors="replace").strip()

    return ""
