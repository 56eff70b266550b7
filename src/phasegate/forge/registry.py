"""The forges that there are: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phasegate.forge.gitea import Gitea
from phasegate.forge.github import GitHub
from phasegate.forge.gitlab import GitLab
from phasegate.forge.http import ForgeApi
from phasegate.forge.port import Forge, ForgeFactory


class ForgeSpec(NamedTuple):
    factory: ForgeFactory
    api_path: str  # below the forge's address
    token_header: tuple[str, str]  # the name, and what stands before the token
    token_hosts: tuple[str, ...]  # to which the tokens of these variables go: a repository's settings may name any host
    token_variables: tuple[str, ...]
    git_user: str  # for git over HTTP, with the token as password
    page_query: tuple[str, str] = ("per_page", "100")
    token_command: tuple[str, ...] = ()  # a program that knows a token


FORGES: Mapping[str, ForgeSpec] = {
    "github": ForgeSpec(
        GitHub,
        "/api/v3",
        ("Authorization", "Bearer "),
        ("github.com",),
        ("GH_TOKEN", "GITHUB_TOKEN"),
        "x-access-token",
        token_command=("gh", "auth", "token", "--hostname", "{host}"),
    ),
    "gitlab": ForgeSpec(
        GitLab,
        "/api/v4",
        ("PRIVATE-TOKEN", ""),
        ("gitlab.com",),
        ("GITLAB_TOKEN",),
        "oauth2",
        token_command=("glab", "config", "get", "token", "--host", "{host}"),
    ),
    "gitea": ForgeSpec(
        Gitea,
        "/api/v1",
        ("Authorization", "token "),
        ("codeberg.org",),
        ("CODEBERG_TOKEN",),
        "token",
        page_query=("limit", "50"),
    ),
}


def connect_forge(kind: str, url: str, repository: str, token: str) -> Forge:
    """The repository of a forge, with the rights of a token."""
    row = FORGES[kind]
    name, before = row.token_header
    address = "https://api.github.com" if url == "https://github.com" else url.rstrip("/") + row.api_path
    return row.factory(ForgeApi(address, {name: before + token}, dict([row.page_query])), repository)
