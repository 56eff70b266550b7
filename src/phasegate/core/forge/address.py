"""Parse the address of a git remote into a repository at a forge."""

from __future__ import annotations

import re
from typing import NamedTuple

_SCP = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?P<path>(?!//)[^\s]+)$")
_URL = re.compile(
    r"^(?P<scheme>https?|ssh|git)://(?:[^@/\s]*@)?"
    r"(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\])(?::(?P<port>\d+))?/(?P<path>[^\s?#]+)$"
)
_KIND_BY_HOST_WORD = {
    "github": "github",
    "gitlab": "gitlab",
    "gitea": "gitea",
    "forgejo": "gitea",
    "codeberg": "gitea",
}


class ForgeAddress(NamedTuple):
    """A repository at a forge.

    `url` is the web address of the forge; `kind` is empty if the host name does not reveal it.
    """

    url: str
    repository: str
    kind: str

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]


def parse_remote_address(remote: str) -> ForgeAddress | None:
    """Parse the address of a remote, or return None if it is not a repository on a forge."""
    match = _URL.match(remote) or _SCP.match(remote)
    if match is None:
        return None

    parts = match.groupdict()
    path = parts["path"].strip("/").removesuffix(".git")
    if "/" not in path or ".." in path.split("/"):
        return None

    scheme = parts.get("scheme") or ""
    url = f"https://{parts['host']}"
    if scheme.startswith("http"):
        url = f"{scheme}://{parts['host']}"
        if parts["port"]:
            url += f":{parts['port']}"

    host_words = parts["host"].lower().split(".")
    kinds = (kind for word, kind in _KIND_BY_HOST_WORD.items() if word in host_words)
    return ForgeAddress(url=url, repository=path, kind=next(kinds, ""))
