"""An agent's way to its provider, where a job has a network of its own: a broker, and a dummy in the place of the key.

A program that takes the address of its model from us is sent to the broker without encryption, and the broker puts the
key in. Other programs go through it by `CONNECT`: what they send is theirs, and so is the key.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from phasegate.agents.program_launch import CERTIFICATES, ROUTES
from phasegate.agents.run.secret_values import secrets_of
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.core.agents.hosts import ANY
from phasegate.sandbox.egress_proxy import Broker, Reached
from phasegate.sandbox.request import LEADING_OUT, WAY_OUT, Request

_ORIGIN = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]+")
_LEADS_SOMEWHERE = re.compile(r"URL|ENDPOINT|CONFIG_CONTENT", re.I)


class Outward(NamedTuple):
    """What is known of an agent's way out."""

    row: HarnessRow
    hosts: tuple[str, ...]  # that the person allows
    pass_env: tuple[str, ...]

    @property
    def is_bounded(self) -> bool:
        """Whether it is known what it has to reach. `*` is a person's word that it may reach everything."""
        return ANY not in self.hosts and bool(self.hosts or self.row.hosts)


def with_way_out(request: Request, outward: Outward, note: Callable[[Reached], None]) -> tuple[Request, Broker]:
    """The request of a job whose only way out is a broker, and that broker."""
    env, row = dict(request.env), outward.row
    variable, address, key = row.base_url
    own_address = any(_ORIGIN.search(env.get(name, "")) for name in row.variables) or _origins(request.argv) != []
    if variable and not own_address and env.get(key):
        env[variable] = address
    names = [name for name in outward.pass_env if name not in (*ROUTES, *CERTIFICATES)]
    leading = [name for name in (*names, variable) if name in row.variables or _LEADS_SOMEWHERE.search(name)]
    routes = [*dict.fromkeys(_origins([*(env.get(name, "") for name in leading), *request.argv]))]
    dummies = _dummies(env, _hidden(env, row, names, request.argv))
    swap = {**dummies, **{route: f"{WAY_OUT}/~{number}" for number, route in enumerate(routes)}}
    env = {name: _swapped(value, swap if name in leading else dummies) for name, value in env.items()}
    env |= LEADING_OUT
    hosts = outward.hosts if own_address else (*row.hosts, *outward.hosts)
    broker = Broker(hosts, routes, {dummy: real for real, dummy in dummies.items()}, note)
    argv = tuple(_swapped(word, swap) for word in request.argv)
    return request._replace(env=env, argv=argv, way_out=broker), broker


def _origins(texts: Iterable[str]) -> list[str]:
    """The addresses in these texts; the longest first, for one may begin another."""
    return sorted({found for text in texts for found in _ORIGIN.findall(text)}, key=len, reverse=True)


def _hidden(env: Mapping[str, str], row: HarnessRow, names: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The variables whose keys go to an address that is set, and so through the broker.

    `MODEL_API_KEY` goes where `MODEL_BASE_URL` says. A configuration holds its address and its key together.
    """
    leading = [name for name in {*names, row.base_url[0]} if _ORIGIN.search(env.get(name, ""))]
    beginnings = tuple(name.partition("BASE_URL")[0] for name in leading if "_BASE_URL" in name)
    of_program = row.keys if row.base_url[0] in leading else ()
    command = " ".join(argv) if _origins(argv) else ""
    return [*of_program, *leading, *(name for name in names if name.startswith(beginnings) or name in command)]


def _dummies(env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    real = (secret.decode("utf-8", "surrogateescape") for secret in secrets_of(env, names))
    return {value: f"{value[:3]}-dummy-{secrets.token_hex(12)}" for value in sorted(real, key=len, reverse=True)}


def _swapped(text: str, swap: Mapping[str, str]) -> str:
    for old, new in swap.items():
        text = text.replace(old, new)
    return text
