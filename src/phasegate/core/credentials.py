"""Decide which secret of the user may go where.

Settings name variables and hosts; this module says which combinations are refused:

- A well-known variable of a forge (GH_TOKEN) goes to the hosts of that forge only, encrypted.
- The token of a forge goes to one host: its API and the git remote must be on the same one.
- The key of an agent's provider goes to that agent only, never to a forge, a bucket or a server.
- The token of a forge goes to no bucket and no Temporal server.
- Credentials of package registries go to setups of a repository that the user has accepted, if no
  agent wrote the tree (`lends_registry_credentials`).

Settings of a repository count only after the user has accepted them: see `trust`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.trust import Trust

_WEB_SCHEMES = ("https", "http")
_DEFAULT_PORTS = {"https": 443, "http": 80}
_AGENT_KEYS = frozenset(name for row in HARNESSES.values() for name in row.key_variables)
# `phasegate.forge.registry` has their hosts
FORGE_VARIABLES = frozenset(("GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "CODEBERG_TOKEN"))


class SecretRefusal(NamedTuple):
    """Why a secret is not sent, and the remedy."""

    reason: str
    remedy: str


def find_forge_token_refusal(
    variable: str, api_url: str, remote_url: str, hosts_by_variable: Mapping[str, Sequence[str]]
) -> SecretRefusal | None:
    """Return why the token in a variable must not be used for a forge and its remote.

    An empty variable stands for a token from git's credential helper. `hosts_by_variable` has the
    hosts of the well-known variables.
    """
    for url in (api_url, remote_url):
        if not _is_well_formed(url):
            return SecretRefusal(
                f"{url!a} is not a valid address", "fix url in [forge], or the remote"
            )

    api = urlsplit(api_url)
    api_host = (api.hostname or "").lower()
    hosts = hosts_by_variable.get(variable)

    if variable in _AGENT_KEYS:
        return SecretRefusal(
            f"{variable} is an agent's key, not a forge token",
            "set token_env in [forge] to another variable",
        )
    if api.username is not None:
        return SecretRefusal(f"{api_host} must not contain a user name", "fix url in [forge]")
    if hosts is not None and (api_host not in hosts or api.port is not None):
        return SecretRefusal(
            f"refusing to send {variable} to {api.netloc}, which is not its host",
            "set token_env in [forge] to a variable with another name",
        )
    if hosts is not None and api.scheme != "https":
        return SecretRefusal(
            f"refusing to send {variable} without encryption", "use https in `url` of [forge]"
        )

    return _find_remote_refusal(api_url, remote_url)


def _find_remote_refusal(api_url: str, remote_url: str) -> SecretRefusal | None:
    """Refuse a remote on another host or port than the API: git would send it the same token.

    Other kinds of remotes, such as ssh, get no token.
    """
    api = urlsplit(api_url)
    remote = urlsplit(remote_url)
    if remote.scheme not in _WEB_SCHEMES:
        return None

    if _find_server(remote_url) == _find_server(api_url) and remote.scheme == api.scheme:
        return None

    return SecretRefusal(
        f"the remote is at {remote.scheme}://{remote.netloc.rpartition('@')[2]}, but the forge at"
        f" {api.scheme}://{api.netloc}: the token for one is not sent to the other",
        "make `url` in [forge] match the remote's address",
    )


def _find_server(url: str) -> tuple[str, int | None]:
    """Return the host and the port of a URL; the port of another program is another server."""
    parts = urlsplit(url)
    return (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _is_well_formed(url: str) -> bool:
    """Return whether every program reads the same host in a URL.

    After a line feed, a credential helper would read another host.
    """
    try:
        return urlsplit(url).port != 0 and url.isprintable()
    except ValueError:
        return False


def find_server_key_refusal(names: Sequence[str | None], server: str) -> SecretRefusal | None:
    """Return why a variable must not be used for a bucket or a Temporal server.

    Both get a key in clear: the access key of a bucket, and the API key of the server.
    """
    for name in names:
        for owner, owned in (("an agent", _AGENT_KEYS), ("a forge", FORGE_VARIABLES)):
            if name in owned:
                return SecretRefusal(
                    f"{name} is the key of {owner}, not of {server}", "use another variable"
                )
    return None


def lends_registry_credentials(trust: Trust, *, is_users_tree: bool) -> bool:
    """Return whether a setup may use the user's credentials for package registries."""
    return is_users_tree and trust.lends_credentials
