"""The ACP agents that are known as data.

Those we ship, and those of the person's own copy of the registry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from phasegate.core.agents.harnesses import ACP, HarnessRow, find_harness_row
from phasegate.errors import ConfigError
from phasegate.typed import read_json

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"(?<=.)@[^/@]*$")


class _InstallMethod(msgspec.Struct, frozen=True):
    """How a program is had: by a package, or as a file."""

    package: str = ""
    cmd: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class _Distribution(msgspec.Struct, frozen=True):
    npx: _InstallMethod | None = None
    uvx: _InstallMethod | None = None
    binary: dict[str, _InstallMethod] = {}


class _PhasegateExtension(msgspec.Struct, frozen=True):
    """What the published form has no place for."""

    # Where it is not named as its package
    program: str = ""
    keys: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    sign_in: str = ""
    sign_in_files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    tested: str = ""


class _RegistryEntry(msgspec.Struct, frozen=True):
    id: str
    name: str
    distribution: _Distribution
    repository: str = ""
    phasegate: _PhasegateExtension = _PhasegateExtension()


class _Registry(msgspec.Struct, frozen=True):
    agents: list[msgspec.Raw]


def parse_registry(data: bytes) -> dict[str, HarnessRow]:
    """The agents of a registry, by id. Raises msgspec.MsgspecError for what is none at all."""
    found = read_json(data, _Registry)
    return {row.default_agent: row for raw in found.agents for row in _parse_entry(raw)}


def _parse_entry(raw: msgspec.Raw) -> Iterator[HarnessRow]:
    try:
        entry = read_json(raw, _RegistryEntry)
    except msgspec.MsgspecError:
        return

    kinds = entry.distribution
    way = (
        kinds.npx or kinds.uvx or next((kinds.binary[name] for name in sorted(kinds.binary)), None)
    )
    if way is None:
        return

    package = _VERSION.sub("", way.package)
    ours = entry.phasegate
    program = ours.program or (package or way.cmd).rpartition("/")[2]
    is_sound = _ID.fullmatch(entry.id) and _PROGRAM.fullmatch(program)
    if not is_sound or not all(map(_VARIABLE.fullmatch, (*way.env, *ours.keys, *ours.settings))):
        return

    if kinds.uvx:
        by_hand = f"uv tool install {package}"
    else:
        by_hand = f"see {entry.repository or 'its documentation'}"

    yield HarnessRow(
        kind=ACP,
        template="ACP",
        default_agent=entry.id,
        program=program,
        arguments=way.args,
        driver=ACP,
        npm_package=package if kinds.npx else "",
        install_hint=by_hand,
        tested_version=ours.tested,
        key_variables=ours.keys,
        setting_variables=ours.settings,
        sign_in_hint=ours.sign_in or "name the variable of its key in `env` of the agent",
        sign_in_files=ours.sign_in_files,
        hosts=ours.hosts,
        acp_programs=(program,),
        acp_env=tuple(way.env.items()),
    )


SHIPPED_REGISTRY = Path(__file__).with_name("acp-registry.json")
USER_REGISTRY = "phasegate/acp-registry.json"
_MAX_REGISTRY_BYTES = 8_000_000


def load_acp_agents(environ: Mapping[str, str]) -> dict[str, HarnessRow]:
    """All of them by id; the person's own go before ours. Nothing is fetched."""
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    return {
        **_load_registry_file(SHIPPED_REGISTRY),
        **_load_registry_file(Path(home) / USER_REGISTRY),
    }


def resolve_harness_row(kind: str, command: Sequence[str]) -> HarnessRow | None:
    """What is known of an agent's program.

    By its harness, else by the registry if it is driven by ACP.
    """
    found = find_harness_row(kind, command)
    if found is not None or kind != ACP or not command:
        return found

    name = command[0].rpartition("/")[2]
    return next((row for row in load_acp_agents(os.environ).values() if row.program == name), None)


def _load_registry_file(path: Path) -> dict[str, HarnessRow]:
    try:
        about = path.stat()
    except OSError:
        return {}
    return _load_registry_version(path, about.st_mtime_ns, about.st_size)


@cache
def _load_registry_version(path: Path, _mtime_ns: int, size: int) -> dict[str, HarnessRow]:
    try:
        if size > _MAX_REGISTRY_BYTES:
            raise ValueError(f"it is larger than {_MAX_REGISTRY_BYTES} bytes")
        return parse_registry(path.read_bytes())
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} is no registry of ACP agents: {error}", "fetch it again, or remove it"
        ) from error
