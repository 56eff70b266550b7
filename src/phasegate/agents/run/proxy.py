"""An agent's way to its provider, where a job has a network of its own.

A broker, and a dummy in the place of the key.

A program that takes the address of its model from us is sent to the broker without encryption, and
the broker puts the key in. Other programs go through it by `CONNECT`: what they send is theirs, and
so is the key.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from phasegate.agents.program_launch import CERTIFICATE_VARIABLES, PROXY_VARIABLES
from phasegate.agents.run.secret_values import find_env_secrets
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.core.agents.hosts import ANY_HOST
from phasegate.sandbox.egress_proxy import ConnectionAttempt, EgressProxy
from phasegate.sandbox.request import EGRESS_PROXY_ENV, EGRESS_PROXY_URL, JobRequest

_ORIGIN = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]+")
_ENDPOINT_VARIABLE = re.compile(r"URL|ENDPOINT|CONFIG_CONTENT", re.I)


class EgressPolicy(NamedTuple):
    """What is known of an agent's way out."""

    row: HarnessRow
    # That the person allows
    hosts: tuple[str, ...]
    pass_env: tuple[str, ...]

    @property
    def has_known_hosts(self) -> bool:
        """Whether it is known what it has to reach.

        `*` is a person's word that it may reach everything.
        """
        return ANY_HOST not in self.hosts and bool(self.hosts or self.row.hosts)


def add_egress_proxy(
    request: JobRequest, policy: EgressPolicy, on_attempt: Callable[[ConnectionAttempt], None]
) -> tuple[JobRequest, EgressProxy]:
    """The request of a job whose only way out is a broker, and that broker."""
    env = dict(request.env)
    row = policy.row
    variable, address, key = row.base_url
    own_address = (
        any(_ORIGIN.search(env.get(name, "")) for name in row.variables)
        or _find_origins(request.argv) != []
    )
    if variable and not own_address and env.get(key):
        env[variable] = address

    names = [
        name for name in policy.pass_env if name not in (*PROXY_VARIABLES, *CERTIFICATE_VARIABLES)
    ]
    leading = [
        name
        for name in (*names, variable)
        if name in row.variables or _ENDPOINT_VARIABLE.search(name)
    ]
    routes = [
        *dict.fromkeys(_find_origins([*(env.get(name, "") for name in leading), *request.argv]))
    ]
    dummies = _make_dummy_keys(env, _find_key_variables(env, row, names, request.argv))
    swap = {
        **dummies,
        **{route: f"{EGRESS_PROXY_URL}/~{number}" for number, route in enumerate(routes)},
    }
    env = {
        name: _replace_all(value, swap if name in leading else dummies)
        for name, value in env.items()
    }
    env |= EGRESS_PROXY_ENV
    if own_address:
        hosts = policy.hosts
    else:
        hosts = (*row.hosts, *policy.hosts)

    broker = EgressProxy(
        hosts, routes, {dummy: real for real, dummy in dummies.items()}, on_attempt
    )
    argv = tuple(_replace_all(word, swap) for word in request.argv)

    return request._replace(env=env, argv=argv, egress_proxy=broker), broker


def _find_origins(texts: Iterable[str]) -> list[str]:
    """The addresses in these texts; the longest first, for one may begin another."""
    return sorted(
        {found for text in texts for found in _ORIGIN.findall(text)}, key=len, reverse=True
    )


def _find_key_variables(
    env: Mapping[str, str], row: HarnessRow, names: Sequence[str], argv: Sequence[str]
) -> list[str]:
    """The variables whose keys go to an address that is set, and so through the broker.

    `MODEL_API_KEY` goes where `MODEL_BASE_URL` says. A configuration holds its address and its key
    together.
    """
    leading = [name for name in {*names, row.base_url[0]} if _ORIGIN.search(env.get(name, ""))]
    beginnings = tuple(name.partition("BASE_URL")[0] for name in leading if "_BASE_URL" in name)
    if row.base_url[0] in leading:
        of_program = row.key_variables
    else:
        of_program = ()

    if _find_origins(argv):
        command = " ".join(argv)
    else:
        command = ""

    return [
        *of_program,
        *leading,
        *(name for name in names if name.startswith(beginnings) or name in command),
    ]


def _make_dummy_keys(env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    real = (secret.decode("utf-8", "surrogateescape") for secret in find_env_secrets(env, names))
    return {
        value: f"{value[:3]}-dummy-{secrets.token_hex(12)}"
        for value in sorted(real, key=len, reverse=True)
    }


def _replace_all(text: str, replacements: Mapping[str, str]) -> str:
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text
