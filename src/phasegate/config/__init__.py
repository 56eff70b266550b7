"""One typed configuration: flag over environment over file over default. Unknown keys are errors."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from phasegate.config.acp_registry import acp_agents
from phasegate.config.cross_checks import Problem, as_variable, problems, suggestion
from phasegate.config.layers import (
    DEFAULT,
    FILE_NAME,
    PREFIX,
    SEED_VARIABLES,
    Given,
    Key,
    SettingPlace,
    ValueSource,
    find_place,
    from_environment,
    from_file,
    from_flags,
    read_file,
    unknown_seed_variables,
)
from phasegate.config.settings import Agent, Config, Settings
from phasegate.core.agents.harnesses import ACP, ROWS
from phasegate.errors import ConfigError
from phasegate.typed import read_value

__all__ = [
    "FILE_NAME",
    "Agent",
    "Config",
    "Effective",
    "Place",
    "ValueSource",
    "effective_values",
    "find_place",
    "load",
]

_log = logging.getLogger("phasegate")
# What every agent and every workflow must say, and what to do when it does not.
_REQUIRED = {
    "agents": ("harness", f"set one of: {', '.join(ROWS)}"),
    "workflows": ("phases", 'set phases = ["06-implementation"]'),
}
# A value that people write beside tables of names: `already_failing` in [checks] is no profile.
_ALIASES: dict[Key, Key] = {("checks", "already_failing"): ("already_failing",)}
_WRITTEN = {key: written for written, key in _ALIASES.items()}
_REMEDIES = {
    "env": "list the names of variables, never their values",
    "template": "write it in upper case, like CLAUDE",
}

# The types, as people know them.
_WORDS = {
    "`int`": "an integer",
    "`float`": "a number",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "a table",
    "`null`": "nothing",
    "Invalid enum value": "unknown value",
}


class Effective(NamedTuple):
    """The configuration of a repository, and the source of each value that is not a default."""

    config: Config
    sources: Mapping[Key, ValueSource]
    place: SettingPlace
    has_file: bool


def load(start: Path, environ: Mapping[str, str], flags: Mapping[str, str] | None = None) -> Effective:
    """The configuration for the repository around a folder; the first mistake is an error that says where it is."""
    place = find_place(start)
    text = read_file(place.file)
    layers = [
        from_file(text or "", place.file.name),
        from_environment(environ),
        from_flags(flags or {}),
    ]
    values: dict[Key, object] = {}
    sources: dict[Key, ValueSource] = {}
    for layer in layers:
        for given in _settled([*layer], values):
            values[given.key] = given.value
            sources[given.key] = given.source
    _take_from_registry(values, sources, environ)
    for name in unknown_seed_variables(environ):
        _log.warning("%s is not a variable of Phasegate; %s", name, suggestion(name, [*SEED_VARIABLES]))
    return Effective(_built(values, sources), sources, place, text is not None)


def _take_from_registry(values: dict[Key, object], sources: dict[Key, ValueSource], environ: Mapping[str, str]) -> None:
    """The command of an ACP agent that has none and is named as in the registry."""
    for key, value in [*values.items()]:
        command = (*key[:2], "command")
        if _is_in_agent(key) and key[2:] == ("harness",) and value == ACP and command not in values:
            row = acp_agents(environ).get(key[1])
            if row is not None:
                values[command], sources[command] = row.command, ValueSource("registry", row.agent)


def effective_values(effective: Effective) -> Iterator[tuple[Key, object, ValueSource]]:
    """Each value in effect with its key and its source, in the order of the tables."""
    for key, value in _leaves((), effective.config):
        yield _WRITTEN.get(key, key), value, effective.sources.get(key, DEFAULT)


def _settled(layer: Sequence[Given], values: Mapping[Key, object]) -> Iterator[Given]:
    """The values of a layer under their full keys and in the types that are due. `agents.*` stands for all agents."""
    keys = [_known_key(given, values) for given in layer]
    found = [given._replace(key=_ALIASES.get(key, key)) for given, key in zip(layer, keys, strict=True)]
    agents = dict.fromkeys(key[1] for key in [*values, *(given.key for given in found)] if _is_in_agent(key))
    for given in found:
        if given.value == {} and len(given.key) == 2:
            for problem in _missing({given.key[0]: {given.key[1]: {}}}):
                raise _misfit(problem, {given.key: given.source})
        value = _typed(given)
        if isinstance(value, Mapping | Settings):
            continue  # an empty table
        keys = [("agents", name, *given.key[2:]) for name in agents] if given.key[1:2] == ("*",) else [given.key]
        yield from (given._replace(key=key, value=value) for key in keys)


def _is_in_agent(key: Key) -> bool:
    return key[0] == "agents" and len(key) > 2 and key[1] != "*"


def _known_key(given: Given, values: Mapping[Key, object]) -> Key:
    """The key itself; for a variable, whose letters are all upper case, the key that it must mean."""
    if given.source.layer != "environment":
        return given.key
    known = {tuple(as_variable(part) for part in key): key for key in values}
    for length in range(len(given.key), 1, -1):
        for spelt, key in known.items():
            if spelt[:length] == given.key[:length]:
                return (*key[:length], *(part.lower() for part in given.key[length:]))
    return _in_phase_keys(tuple(part.lower() for part in given.key))


def _in_phase_keys(key: Key) -> Key:
    """A phase key has a hyphen where a variable can only have an underscore: `06_implementation`."""
    if key[0] in ("phases", "roles") and len(key) > 1 and re.match(r"[0-9]", key[1]):
        return (key[0], key[1].replace("_", "-"), *key[2:])
    return key


def _typed(given: Given) -> object:
    """The value in the type of its key."""
    type_ = _type_of(given.key, given.source)
    try:
        return read_value(_unwrapped(given, type_), type_, strict=not given.is_text)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeEncodeError) as error:
        remedy = _remedy(given.key, given.value, type_)
        raise ConfigError(f"{_where(given.source)}{'.'.join(given.key)}: {_in_words(error)}", remedy) from error


def _in_words(error: Exception) -> str:
    """What is wrong with a value, in the words of the reference."""
    if isinstance(error, UnicodeEncodeError):
        return "it is not UTF-8"
    what = re.sub(r" matching regex .*", " of another form", str(error).partition(" - at `")[0])
    for name, word in _WORDS.items():
        what = what.replace(name, word)
    return f"{what[:1].lower()}{what[1:]}"


def _unwrapped(given: Given, type_: Any) -> object:
    """Text stands for itself, or for an array as in TOML where one is due."""
    is_array = tuple in (get_origin(type_), *(get_origin(option) for option in get_args(type_)))
    if given.is_text and is_array:
        return tomllib.loads(f"value = {given.value}")["value"]
    return given.value


def _type_of(key: Key, source: ValueSource) -> Any:
    """The type that is due at a key; a key that leads nowhere is an error."""
    type_: Any = Config
    for depth, name in enumerate(key):
        if get_origin(type_) is not None and issubclass(get_origin(type_), Mapping):
            type_ = get_args(type_)[1]
        elif isinstance(type_, type) and issubclass(type_, Settings):
            fields = {field.name: field.type for field in msgspec.structs.fields(type_)}
            if name not in fields:
                raise _unknown(key[:depth], name, list(fields), source)
            type_ = fields[name]
        else:
            raise ConfigError(f"{_where(source)}{'.'.join(key[:depth])} is a value, not a table", "set it directly")
    return type_


def _unknown(table: Key, name: str, known: list[str], source: ValueSource) -> ConfigError:
    if source.layer == "environment" and not table:
        return ConfigError(f"{source.place} sets nothing", suggestion(source.place.lower(), _fixed_variables()))
    inside = f" in [{'.'.join(table)}]" if table else ""
    return ConfigError(f"{_where(source)}unknown key `{name}`{inside}", suggestion(name, known))


def _fixed_variables() -> list[str]:
    """The variables whose names do not depend on what the person named."""
    return [f"{PREFIX}{'__'.join(key)}".upper() for key, _ in _leaves((), Config())]


def _where(source: ValueSource) -> str:
    """The line or the variable; a flag is its key, which is named anyway."""
    return f"{source.place}: " if source.place and source.layer != "flag" else ""


def _remedy(key: Key, value: object, type_: Any) -> str:
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        return suggestion(str(value), [*type_])
    return _REMEDIES.get(key[-1], "docs/reference/configuration.md says what each key takes")


def _built(values: Mapping[Key, object], sources: Mapping[Key, ValueSource]) -> Config:
    """All values in one structure that fits together."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        table = tree
        for name in key[:-1]:
            table = table.setdefault(name, {})
        table[key[-1]] = value
    for problem in _missing(tree):
        raise _misfit(problem, sources)
    config = read_value(tree, Config)
    for problem in problems(config):
        raise _misfit(problem, sources)
    return config


def _missing(tree: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Iterator[Problem]:
    for table, (field, remedy) in _REQUIRED.items():
        for name, entry in tree.get(table, {}).items():
            if field not in entry:
                yield Problem((table, name), f"`{field}` is missing", remedy)


def _misfit(problem: Problem, sources: Mapping[Key, ValueSource]) -> ConfigError:
    source = next((sources[key] for key in sources if key[: len(problem.key)] == problem.key), DEFAULT)
    return ConfigError(f"{_where(source)}{'.'.join(problem.key)}: {problem.what}", problem.remedy)


def _leaves(key: Key, value: object) -> Iterator[tuple[Key, object]]:
    if isinstance(value, Settings):
        for name in value.__struct_fields__:
            yield from _leaves((*key, name), getattr(value, name))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves((*key, name), inner)
    else:
        yield key, value
