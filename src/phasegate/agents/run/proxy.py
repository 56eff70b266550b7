"""Give a job with an isolated network access to its model provider, without the real key.

If a program's model address can be configured, it gets the address of the egress proxy and a
placeholder key. It calls the proxy without encryption, and the proxy inserts the real key. Other
programs use `CONNECT`: their traffic is encrypted, so they get the real key.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from phasegate.agents.program_launch import CERTIFICATE_VARIABLES, PROXY_VARIABLES
from phasegate.agents.run.secret_values import find_env_secrets
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.core.agents.hosts import ANY_HOST, PUBLIC_HOSTS
from phasegate.sandbox.egress_proxy import ConnectionAttempt, EgressProxy
from phasegate.sandbox.request import EGRESS_PROXY_ENV, EGRESS_PROXY_URL, JobRequest, SandboxLevel

_ORIGIN = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]+")
_ENDPOINT_VARIABLE = re.compile(r"URL|ENDPOINT|CONFIG_CONTENT|API_BASE|_HOST$", re.I)


class EgressPolicy(NamedTuple):
    """The hosts and variables that decide an agent's network access."""

    row: HarnessRow
    # allowed in the configuration
    hosts: tuple[str, ...]
    pass_env: tuple[str, ...]

    @property
    def allows_everything(self) -> bool:
        """Whether the user opened the network, with `*` in the configuration."""
        return ANY_HOST in self.hosts

    def list_hosts(self, level: SandboxLevel) -> tuple[str, ...]:
        """Return the hosts that the agent may reach at a level.

        If none is known: every host but this machine, and none at `offline`.
        """
        known = (*self.row.hosts, *self.hosts)
        if known or level is SandboxLevel.OFFLINE:
            return known
        return (PUBLIC_HOSTS,)


def add_egress_proxy(
    request: JobRequest, policy: EgressPolicy, on_attempt: Callable[[ConnectionAttempt], None]
) -> tuple[JobRequest, EgressProxy]:
    """Restrict a job's network access to a new egress proxy; return the request and the proxy."""
    env = dict(request.env)
    row = policy.row

    # The user may have set another address, in a variable or as an argument. Then the default hosts
    # of the program are not needed.
    hosts = policy.list_hosts(request.level)
    if not _has_own_address(request, row):
        _set_default_address(env, row)
    elif row.hosts:
        hosts = policy.hosts

    names = _list_agent_variables(policy)
    endpoint_names = _list_endpoint_variables(names, row)
    endpoints = [env.get(name, "") for name in endpoint_names]
    routes = _find_origins([*endpoints, *request.argv])

    # The job gets placeholders; the proxy inserts the keys outside the sandbox.
    key_names = _find_key_variables(env, row, names, request.argv)
    placeholders = _make_placeholder_keys(env, key_names)
    replacements = dict(placeholders)

    # Each address of a provider becomes a path of the proxy.
    for number, route in enumerate(routes):
        replacements[route] = f"{EGRESS_PROXY_URL}/~{number}"

    for name, value in env.items():
        if name in endpoint_names:
            env[name] = _replace_all(value, replacements)
        else:
            env[name] = _replace_all(value, placeholders)

    env |= EGRESS_PROXY_ENV
    argv = tuple(_replace_all(word, replacements) for word in request.argv)
    real_keys = {placeholder: real for real, placeholder in placeholders.items()}
    proxy = EgressProxy(hosts, routes, real_keys, on_attempt, row.key_headers)

    return request._replace(env=env, argv=argv, egress_proxy=proxy), proxy


def _has_own_address(request: JobRequest, row: HarnessRow) -> bool:
    """Return True if a variable of the program or its command contains an address."""
    values = [request.env.get(name, "") for name in row.variables]
    return bool(_find_origins([*values, *request.argv]))


def _set_default_address(env: dict[str, str], row: HarnessRow) -> None:
    """Set the address variable of the program, so that its calls can be sent to the proxy."""
    variable, address, key = row.base_url
    if variable and env.get(key):
        env[variable] = address


def _list_agent_variables(policy: EgressPolicy) -> list[str]:
    """Return the variables passed to the agent, except proxy and certificate variables.

    The user's proxy and certificate settings do not apply inside the job.
    """
    system_names = (*PROXY_VARIABLES, *CERTIFICATE_VARIABLES)
    return [name for name in policy.pass_env if name not in system_names]


def _list_endpoint_variables(names: Iterable[str], row: HarnessRow) -> list[str]:
    """Return the variables that can contain the address of a model."""
    endpoint_names = []
    for name in (*names, row.base_url[0]):
        if name in row.variables or _ENDPOINT_VARIABLE.search(name):
            endpoint_names.append(name)

    return endpoint_names


def _find_origins(texts: Iterable[str]) -> list[str]:
    """Return the addresses in these texts, longest first, since one may be a prefix of another."""
    origins: set[str] = set()
    for text in texts:
        origins.update(_ORIGIN.findall(text))

    return sorted(origins, key=len, reverse=True)


def _find_key_variables(
    env: Mapping[str, str], row: HarnessRow, names: Sequence[str], argv: Sequence[str]
) -> list[str]:
    """Return the variables whose keys are sent to a configured address, and so through the proxy.

    `MODEL_API_KEY` is sent to `MODEL_BASE_URL`. A configuration in a variable contains both its
    address and its key.
    """
    address_names = []
    for name in {*names, row.base_url[0]}:
        if _ORIGIN.search(env.get(name, "")):
            address_names.append(name)

    prefixes = tuple(name.partition("BASE_URL")[0] for name in address_names if "_BASE_URL" in name)
    program_keys = row.key_variables if row.base_url[0] in address_names else ()
    command = " ".join(argv) if _find_origins(argv) else ""
    related = [name for name in names if name.startswith(prefixes) or name in command]

    return [*program_keys, *address_names, *related]


def _make_placeholder_keys(env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Map each real key to a random placeholder, longest first."""
    keys = [secret.decode("utf-8", "surrogateescape") for secret in find_env_secrets(env, names)]
    keys.sort(key=len, reverse=True)
    return {key: f"{key[:3]}-dummy-{secrets.token_hex(12)}" for key in keys}


def _replace_all(text: str, replacements: Mapping[str, str]) -> str:
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text
