"""Load ACP agents from the shipped registry and from the user's copy of the public registry."""

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
    """How a program is installed: from a package, or as a binary."""

    package: str = ""
    cmd: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class _Distribution(msgspec.Struct, frozen=True):
    npx: _InstallMethod | None = None
    uvx: _InstallMethod | None = None
    binary: dict[str, _InstallMethod] = {}


class _PhasegateExtension(msgspec.Struct, frozen=True):
    """Fields that the published format does not have."""

    # Only if the program is not named like its package.
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
    """Parse a registry into agents by id. Raises msgspec.MsgspecError for invalid data.

    An entry that cannot be used is skipped.
    """
    registry = read_json(data, _Registry)
    return {row.default_agent: row for raw in registry.agents for row in _parse_entry(raw)}


def _parse_entry(raw: msgspec.Raw) -> Iterator[HarnessRow]:
    """Yield the agent of a registry entry; nothing if the entry cannot be used."""
    try:
        entry = read_json(raw, _RegistryEntry)
    except msgspec.MsgspecError:
        return

    kinds = entry.distribution
    binaries = [kinds.binary[name] for name in sorted(kinds.binary)]
    method = next(iter(filter(None, (kinds.npx, kinds.uvx, *binaries))), None)
    if method is None:
        return

    package = _VERSION.sub("", method.package)
    extension = entry.phasegate
    program = extension.program or (package or method.cmd).rpartition("/")[2]

    # The registry is a file from outside: names go into commands, paths and environments.
    variables = (*method.env, *extension.keys, *extension.settings)
    has_safe_names = _ID.fullmatch(entry.id) and _PROGRAM.fullmatch(program)
    if not has_safe_names or not all(map(_VARIABLE.fullmatch, variables)):
        return

    if kinds.uvx:
        install_hint = f"uv tool install {package}"
    else:
        install_hint = f"see {entry.repository or 'its documentation'}"

    yield HarnessRow(
        kind=ACP,
        template="ACP",
        default_agent=entry.id,
        program=program,
        arguments=method.args,
        driver=ACP,
        npm_package=package if kinds.npx else "",
        install_hint=install_hint,
        tested_version=extension.tested,
        key_variables=extension.keys,
        setting_variables=extension.settings,
        sign_in_hint=extension.sign_in
        or "add the name of its API key variable to the agent's `env`",
        sign_in_files=extension.sign_in_files,
        hosts=extension.hosts,
        acp_programs=(program,),
        acp_env=tuple(method.env.items()),
    )


SHIPPED_REGISTRY = Path(__file__).with_name("acp-registry.json")
USER_REGISTRY = "phasegate/acp-registry.json"
_MAX_REGISTRY_BYTES = 8_000_000


def load_acp_agents(environ: Mapping[str, str]) -> dict[str, HarnessRow]:
    """Return all agents by id; the user's entries override the shipped ones. Nothing is fetched."""
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    return {
        **_load_registry_file(SHIPPED_REGISTRY),
        **_load_registry_file(Path(home) / USER_REGISTRY),
    }


def resolve_harness_row(kind: str, command: Sequence[str]) -> HarnessRow | None:
    """Return the row of an agent's program, or of the registered ACP agent that it starts."""
    row = find_harness_row(kind, command)
    if row is not None or kind != ACP or not command:
        return row

    name = command[0].rpartition("/")[2]
    return next((row for row in load_acp_agents(os.environ).values() if row.program == name), None)


def _load_registry_file(path: Path) -> dict[str, HarnessRow]:
    try:
        status = path.stat()
    except OSError:
        return {}
    return _load_registry_version(path, status.st_mtime_ns, status.st_size)


@cache
def _load_registry_version(path: Path, _mtime_ns: int, size: int) -> dict[str, HarnessRow]:
    try:
        if size > _MAX_REGISTRY_BYTES:
            raise ValueError(f"larger than {_MAX_REGISTRY_BYTES} bytes")
        return parse_registry(path.read_bytes())
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} is not an ACP agent registry: {error}", "download it again, or remove it"
        ) from error
