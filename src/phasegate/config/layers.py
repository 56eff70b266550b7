"""Read the layers of the configuration: files, environment and flags.

Each layer yields values by key, with the location of each value. `config/load.py` merges them and
defines their precedence.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.config.trust import TRUST_VARIABLE
from phasegate.errors import ConfigError
from phasegate.files.text_file import read_text_file

Key = tuple[str, ...]

CONFIG_FILE_NAME = "phasegate.toml"
MAX_FILE_BYTES = 1_000_000
# agents.NAME.env has three parts; no key is deeper.
_MAX_KEY_DEPTH = 4
ENV_PREFIX = "PHASEGATE_"
# Variables that Phasegate sets for agents: a `phasegate` command inside a job must accept them.
JOB_VARIABLES = frozenset(
    {"PHASEGATE_JOB", "PHASEGATE_PHASE", "PHASEGATE_WORKFLOW_PHASE", "PHASEGATE_ROUND"}
)
# Variables that are not settings: see config/trust.py.
_OTHER_VARIABLES = JOB_VARIABLES | {TRUST_VARIABLE}
# Names from the specification; they apply to all agents.
AGILEPLUS_VARIABLES: dict[str, Key] = {
    "AGILEPLUS_AGENT_TIMEOUT": ("agents", "*", "timeout_s"),
    "AGILEPLUS_AGENT_MAX_RETRIES": ("agents", "*", "max_retries"),
}

# Variables with the prefix of the specification that an agent gets.
AGILEPLUS_JOB_VARIABLES = (
    "AGILEPLUS_JOB_ID",
    "AGILEPLUS_WP_ID",
    "AGILEPLUS_PROMPT",
    "AGILEPLUS_CONTEXT",
)
SEED_PREFIX = "AGILEPLUS_"


class ValueSource(NamedTuple):
    """The layer that a value comes from, and its place in it: a line, variable or flag."""

    layer: str
    place: str


DEFAULT_SOURCE = ValueSource("default", "")


class RawSetting(NamedTuple):
    """A value as it was given. A text (`is_text`) is converted to the type of its key."""

    key: Key
    value: object
    source: ValueSource
    is_text: bool


class ConfigLocation(NamedTuple):
    """The root of a repository and the path of its configuration file, which may not exist."""

    root: Path
    file: Path


def locate_config(start: Path) -> ConfigLocation:
    """Find the root of the repository that contains a folder, and its configuration file.

    The file of the root is used in every subfolder. Outside of a repository only a file in the
    folder itself is read: files in parent folders may belong to another user.
    """
    root = next(
        (folder for folder in (start, *start.parents) if os.path.lexists(folder / ".git")), start
    )
    return ConfigLocation(root, root / CONFIG_FILE_NAME)


def read_config_file(path: Path) -> str | None:
    """Return the text of the file, or None if it does not exist."""
    if not os.path.lexists(path):
        return None
    return read_text_file(path, MAX_FILE_BYTES, follow_link=True).text.removeprefix("\ufeff")


def locate_user_config(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's own configuration file, which may not exist."""
    named = environ.get("XDG_CONFIG_HOME", "")
    if named.startswith("/"):
        return Path(named, "phasegate/config.toml")
    return Path("~/.config/phasegate/config.toml").expanduser()


def parse_file_values(text: str, name: str, layer: str = "file") -> Iterator[RawSetting]:
    """Yield the values of a file in their order.

    An empty table, and one below the maximum depth, is a value of its own.
    """
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{name} is not valid TOML: {error}", "see https://toml.io for the syntax"
        ) from error

    lines = _find_key_lines(text)
    for key, value in _iter_leaves((), tables):
        line = next(
            (lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines),
            None,
        )
        place = f"{name}:{line}" if line else name
        yield RawSetting(key, value, ValueSource(layer, place), is_text=False)


def parse_environment_values(environ: Mapping[str, str]) -> Iterator[RawSetting]:
    """Yield the settings in environment variables such as `PHASEGATE_RUN__PARALLEL`.

    The few `AGILEPLUS_*` variables come first, so that `PHASEGATE_*` variables override them.
    Variables that Phasegate sets for a job are skipped.
    """
    names = sorted(
        name for name in environ if name.startswith(ENV_PREFIX) and name not in _OTHER_VARIABLES
    )
    keys: dict[str, Key] = {
        name: tuple(name.removeprefix(ENV_PREFIX).split("__")) for name in names
    }
    for name, key in {**AGILEPLUS_VARIABLES, **keys}.items():
        if name in environ:
            yield RawSetting(key, environ[name], ValueSource("environment", name), is_text=True)


def find_unknown_seed_variables(environ: Mapping[str, str]) -> list[str]:
    """Return unknown variables with the prefix of the specification.

    Other tools may use them, so they are not errors.
    """
    known = (*AGILEPLUS_VARIABLES, *AGILEPLUS_JOB_VARIABLES)
    return sorted(name for name in environ if name.startswith(SEED_PREFIX) and name not in known)


def parse_flag_values(flags: Mapping[str, str]) -> Iterator[RawSetting]:
    """Yield the values of `--set run.parallel=3`."""
    for name, value in flags.items():
        yield RawSetting(tuple(name.split(".")), value, ValueSource("flag", name), is_text=True)


def _iter_leaves(key: Key, value: object) -> Iterator[tuple[Key, object]]:
    if isinstance(value, dict) and value and len(key) < _MAX_KEY_DEPTH:
        for name, inner in value.items():
            yield from _iter_leaves((*key, name), inner)
    elif key:
        yield key, value


def _find_key_lines(text: str) -> dict[Key, int]:
    """Map each key to its line, reading one line at a time.

    Values of several lines may give a wrong line.
    """
    found: dict[Key, int] = {}
    table: Key = ()

    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = _parse_key_path(stripped) or table
            found.setdefault(table[:_MAX_KEY_DEPTH], number)
        elif "=" in stripped:
            key = (*table, *_parse_key_path(f"{stripped.partition('=')[0]}= 0"))
            found.setdefault(key[:_MAX_KEY_DEPTH], number)

    return found


def _parse_key_path(toml_line: str) -> Key:
    """Return the key that a single line of TOML sets or opens."""
    try:
        inner: object = tomllib.loads(toml_line)
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()

    path: list[str] = []
    while isinstance(inner, dict) and inner:
        name, inner = next(iter(inner.items()))
        path.append(name)

    return tuple(path)
