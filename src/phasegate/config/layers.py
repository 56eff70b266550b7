"""The layers of the configuration: file, environment, flags.

Each gives values by key, and knows where each stands.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError
from phasegate.files.text_file import read_text_file

Key = tuple[str, ...]

CONFIG_FILE_NAME = "phasegate.toml"
MAX_FILE_BYTES = 1_000_000
# Agents.NAME.env is three; nothing real lies deeper
_MAX_KEY_DEPTH = 4
ENV_PREFIX = "PHASEGATE_"
# What the product itself gives to agents; `phasegate` inside a job is no mistake of anybody.
JOB_VARIABLES = frozenset(
    {"PHASEGATE_JOB", "PHASEGATE_PHASE", "PHASEGATE_WORKFLOW_PHASE", "PHASEGATE_ROUND"}
)
# The seeds' names; they concern all agents.
SEED_VARIABLES: dict[str, Key] = {
    "AGILEPLUS_AGENT_TIMEOUT": ("agents", "*", "timeout_s"),
    "AGILEPLUS_AGENT_MAX_RETRIES": ("agents", "*", "max_retries"),
}


# What an agent is given under the seeds' prefix.
SEED_JOB_VARIABLES = (
    "AGILEPLUS_JOB_ID",
    "AGILEPLUS_WP_ID",
    "AGILEPLUS_PROMPT",
    "AGILEPLUS_CONTEXT",
)
SEED_PREFIX = "AGILEPLUS_"


class ValueSource(NamedTuple):
    """Which layer a value comes from, and where it stands there.

    A line of the file, a variable, a flag.
    """

    layer: str
    place: str


DEFAULT_SOURCE = ValueSource("default", "")


class RawSetting(NamedTuple):
    """A value as it was given. What comes as text is read by the type that is due."""

    key: Key
    value: object
    source: ValueSource
    is_text: bool


class ConfigLocation(NamedTuple):
    """The repository that a folder belongs to, and its configuration file, which need not exist."""

    root: Path
    file: Path


def locate_config(start: Path) -> ConfigLocation:
    """The root of the repository around a folder, and the configuration file there.

    A run has one, wherever it begins.

    Outside of any repository only the folder's own file counts: nobody knows who wrote those
    further up.
    """
    root = next(
        (folder for folder in (start, *start.parents) if os.path.lexists(folder / ".git")), start
    )
    return ConfigLocation(root, root / CONFIG_FILE_NAME)


def read_config_file(path: Path) -> str | None:
    """The text of the file, None if there is none."""
    if not os.path.lexists(path):
        return None
    return read_text_file(path, MAX_FILE_BYTES, follow_link=True).text.removeprefix("\ufeff")


def parse_file_values(text: str, name: str) -> Iterator[RawSetting]:
    """The values of the file in its order.

    A table of names and an empty table count as values of their own.
    """
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{name} is not valid TOML: {error}", "see https://toml.io for how to write it"
        ) from error

    lines = _find_key_lines(text)
    for key, value in _iter_leaves((), tables):
        line = next(
            (lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines),
            None,
        )
        yield RawSetting(
            key, value, ValueSource("file", f"{name}:{line}" if line else name), is_text=False
        )


def parse_environment_values(environ: Mapping[str, str]) -> Iterator[RawSetting]:
    """The values of `PHASEGATE_RUN__PARALLEL` and its like.

    The seeds' names come first, so that ours win over them.
    """
    ours = sorted(
        name for name in environ if name.startswith(ENV_PREFIX) and name not in JOB_VARIABLES
    )
    keys: dict[str, Key] = {name: tuple(name.removeprefix(ENV_PREFIX).split("__")) for name in ours}
    for name, key in {**SEED_VARIABLES, **keys}.items():
        if name in environ:
            yield RawSetting(key, environ[name], ValueSource("environment", name), is_text=True)


def find_unknown_seed_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables with the seeds' prefix that mean nothing here.

    Other tools may use them, so they are no error.
    """
    known = (*SEED_VARIABLES, *SEED_JOB_VARIABLES)
    return sorted(name for name in environ if name.startswith(SEED_PREFIX) and name not in known)


def parse_flag_values(flags: Mapping[str, str]) -> Iterator[RawSetting]:
    """The values of `--set run.parallel=3` and of the flags that stand for such a key."""
    for name, value in flags.items():
        yield RawSetting(tuple(name.split(".")), value, ValueSource("flag", name), is_text=True)


def _iter_leaves(key: Key, value: object) -> Iterator[tuple[Key, object]]:
    if isinstance(value, dict) and value and len(key) < _MAX_KEY_DEPTH:
        for name, inner in value.items():
            yield from _iter_leaves((*key, name), inner)
    elif key:
        yield key, value


def _find_key_lines(text: str) -> dict[Key, int]:
    """The line of each key, as far as a line by itself tells its key.

    Values of several lines may mislead it.
    """
    found: dict[Key, int] = {}
    table: Key = ()

    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("["):
            table = _parse_key_path(bare) or table
            found.setdefault(table[:_MAX_KEY_DEPTH], number)
        elif "=" in bare:
            key = (*table, *_parse_key_path(f"{bare.partition('=')[0]}= 0"))
            found.setdefault(key[:_MAX_KEY_DEPTH], number)

    return found


def _parse_key_path(toml_line: str) -> Key:
    """The key that a line of TOML by itself sets or opens."""
    try:
        inner: object = tomllib.loads(toml_line)
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()

    path: list[str] = []
    while isinstance(inner, dict) and inner:
        name, inner = next(iter(inner.items()))
        path.append(name)

    return tuple(path)
