"""Define the supported forges, one table row each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from phasegate.forge.gitea import Gitea
from phasegate.forge.github import GitHub
from phasegate.forge.gitlab import GitLab
from phasegate.forge.http import ForgeApi, ResponseStore
from phasegate.forge.port import Forge, ForgeFactory


class ForgeSpec(NamedTuple):
    factory: ForgeFactory
    # Relative to the forge's URL
    api_path: str
    # Header name, and the prefix of the token
    token_header: tuple[str, str]
    # Only these hosts get the tokens of these variables: a repository's settings may name any host
    token_hosts: tuple[str, ...]
    token_variables: tuple[str, ...]
    # User name for git over HTTP; the token is the password
    git_user: str
    page_query: tuple[str, str] = ("per_page", "100")
    # A command that prints a token
    token_command: tuple[str, ...] = ()


FORGES: Mapping[str, ForgeSpec] = {
    "github": ForgeSpec(
        factory=GitHub,
        api_path="/api/v3",
        token_header=("Authorization", "Bearer "),
        token_hosts=("github.com",),
        token_variables=("GH_TOKEN", "GITHUB_TOKEN"),
        git_user="x-access-token",
        token_command=("gh", "auth", "token", "--hostname", "{host}"),
    ),
    "gitlab": ForgeSpec(
        factory=GitLab,
        api_path="/api/v4",
        token_header=("PRIVATE-TOKEN", ""),
        token_hosts=("gitlab.com",),
        token_variables=("GITLAB_TOKEN",),
        git_user="oauth2",
        token_command=("glab", "config", "get", "token", "--host", "{host}"),
    ),
    "gitea": ForgeSpec(
        factory=Gitea,
        api_path="/api/v1",
        token_header=("Authorization", "token "),
        token_hosts=("codeberg.org",),
        token_variables=("CODEBERG_TOKEN",),
        git_user="token",
        page_query=("limit", "50"),
    ),
}


def connect_forge(
    kind: str,
    url: str,
    repository: str,
    token: str,
    *,
    store: ResponseStore | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Forge:
    """Return a client for a repository on a forge, authenticated with a token."""
    row = FORGES[kind]
    name, before = row.token_header
    if url == "https://github.com":
        address = "https://api.github.com"
    else:
        address = url.rstrip("/") + row.api_path

    api = ForgeApi(address, {name: before + token}, dict([row.page_query]), store=store, wait=wait)
    return row.factory(api, repository)
