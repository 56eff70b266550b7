"""The forges that there are: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phasegate.forge.gitea import Gitea
from phasegate.forge.github import GitHub
from phasegate.forge.gitlab import GitLab
from phasegate.forge.http import Api
from phasegate.forge.port import Forge, MakesForge


class ForgeRow(NamedTuple):
    makes: MakesForge
    api: str  # below the forge's address
    header: tuple[str, str]  # the name, and what stands before the token
    hosts: tuple[str, ...]  # to which the tokens of these variables go: a repository's settings may name any host
    tokens: tuple[str, ...]
    user: str  # for git over HTTP, with the token as password
    page: tuple[str, str] = ("per_page", "100")
    program: tuple[str, ...] = ()  # a program that knows a token


ROWS: Mapping[str, ForgeRow] = {
    "github": ForgeRow(
        GitHub,
        "/api/v3",
        ("Authorization", "Bearer "),
        ("github.com",),
        ("GH_TOKEN", "GITHUB_TOKEN"),
        "x-access-token",
        program=("gh", "auth", "token", "--hostname", "{host}"),
    ),
    "gitlab": ForgeRow(
        GitLab,
        "/api/v4",
        ("PRIVATE-TOKEN", ""),
        ("gitlab.com",),
        ("GITLAB_TOKEN",),
        "oauth2",
        program=("glab", "config", "get", "token", "--host", "{host}"),
    ),
    "gitea": ForgeRow(
        Gitea,
        "/api/v1",
        ("Authorization", "token "),
        ("codeberg.org",),
        ("CODEBERG_TOKEN",),
        "token",
        page=("limit", "50"),
    ),
}


def forge_at(kind: str, url: str, repository: str, token: str) -> Forge:
    """The repository of a forge, with the rights of a token."""
    row = ROWS[kind]
    name, before = row.header
    address = "https://api.github.com" if url == "https://github.com" else url.rstrip("/") + row.api
    return row.makes(Api(address, {name: before + token}, dict([row.page])), repository)
