"""Where a repository is at a forge, told from the address of its remote."""

from __future__ import annotations

import re
from typing import NamedTuple

_SCP = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?P<path>(?!//)[^\s]+)$")
_URL = re.compile(
    r"^(?P<scheme>https?|ssh|git)://(?:[^@/\s]*@)?(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\])(?::(?P<port>\d+))?/(?P<path>[^\s?#]+)$"
)
_KIND_BY_HOST_WORD = {
    "github": "github",
    "gitlab": "gitlab",
    "gitea": "gitea",
    "forgejo": "gitea",
    "codeberg": "gitea",
}


class ForgeAddress(NamedTuple):
    """`url` is where people look at the forge; `kind` is empty where its name does not tell."""

    url: str
    repository: str
    kind: str

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]


def parse_remote_address(remote: str) -> ForgeAddress | None:
    """What the address of a remote says; None if it is no repository at a forge."""
    found = _URL.match(remote) or _SCP.match(remote)
    if found is None:
        return None

    parts = found.groupdict()
    is_web = str(parts.get("scheme")).startswith("http")
    if is_web and parts.get("port"):
        port = f":{parts['port']}"
    else:
        port = ""

    path = parts["path"].strip("/").removesuffix(".git")
    if path.count("/") < 1 or ".." in path.split("/"):
        return None

    kind = next(
        (
            kind
            for word, kind in _KIND_BY_HOST_WORD.items()
            if word in parts["host"].lower().split(".")
        ),
        "",
    )
    return ForgeAddress(
        f"{parts['scheme'] if is_web else 'https'}://{parts['host']}{port}", path, kind
    )
