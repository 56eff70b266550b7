"""The ACP agents that are known as data: those we ship, and those of the person's own copy of the registry."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from phasegate.errors import ConfigError
from phasegate.rules.acp_registry import read_registry
from phasegate.rules.harnesses import ACP, HarnessRow, known_row

SHIPPED = Path(__file__).with_name("acp-registry.json")
OWN = "phasegate/acp-registry.json"
_LARGEST_BYTES = 8_000_000


def acp_agents(environ: Mapping[str, str]) -> dict[str, HarnessRow]:
    """All of them by id; the person's own go before ours. Nothing is fetched."""
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    return {**_read(SHIPPED), **_read(Path(home) / OWN)}


def row_of(kind: str, command: Sequence[str]) -> HarnessRow | None:
    """What is known of an agent's program: by its harness, else by the registry if it is driven by ACP."""
    found = known_row(kind, command)
    if found is not None or kind != ACP or not command:
        return found
    name = command[0].rpartition("/")[2]
    return next((row for row in acp_agents(os.environ).values() if row.program == name), None)


def _read(path: Path) -> dict[str, HarnessRow]:
    try:
        about = path.stat()
    except OSError:
        return {}
    return _read_version(path, about.st_mtime_ns, about.st_size)


@cache
def _read_version(path: Path, _mtime_ns: int, size: int) -> dict[str, HarnessRow]:
    try:
        if size > _LARGEST_BYTES:
            raise ValueError(f"it is larger than {_LARGEST_BYTES} bytes")
        return read_registry(path.read_bytes())
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} is no registry of ACP agents: {error}", "fetch it again, or remove it") from error
