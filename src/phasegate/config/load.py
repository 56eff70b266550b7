"""Load the typed configuration.

Flags override the environment, which overrides the user's file, which overrides the repository's
file. Of the latter, only what the user trusts is used (`trust`). Unknown keys are errors.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from phasegate.config.acp_registry import load_acp_agents
from phasegate.config.cross_checks import (
    PHASE_KEYS,
    PROMPT_PHASES,
    ConfigProblem,
    find_config_problems,
    suggest_name,
    to_variable_name,
)
from phasegate.config.layers import (
    AGILEPLUS_VARIABLES,
    DEFAULT_SOURCE,
    ENV_PREFIX,
    ConfigLocation,
    Key,
    RawSetting,
    ValueSource,
    find_unknown_seed_variables,
    locate_config,
    locate_user_config,
    parse_environment_values,
    parse_file_values,
    parse_flag_values,
    read_config_file,
)
from phasegate.config.settings import Config, PathSettings, SettingsTable
from phasegate.config.trust import describe_untrusted, find_trust
from phasegate.core.agents.harnesses import ACP, HARNESSES
from phasegate.core.trust import Trust, drop_references
from phasegate.errors import ConfigError
from phasegate.typed import read_value

_log = logging.getLogger("phasegate")
# Folder of the features of AgilePlus, with the same layout as kitty-specs/.
AGILEPLUS_FEATURES = "agileplus-specs"
# Required keys of every agent and every workflow, each with the remedy if it is missing.
_REQUIRED_KEYS = {
    "agents": ("harness", f"set one of: {', '.join(HARNESSES)}"),
    "workflows": ("phases", 'set phases = ["06-implementation"]'),
}
# Values written next to tables of names: `already_failing` in [checks] is not a profile.
_KEY_ALIASES: dict[Key, Key] = {("checks", "already_failing"): ("already_failing",)}
_WRITTEN_KEYS = {key: written for written, key in _KEY_ALIASES.items()}
_REMEDIES = {
    "env": "list the names of variables, never their values",
    "template": "write it in upper case, like CLAUDE",
}
# Terms of msgspec -> terms of the reference documentation.
_READABLE_TERMS = {
    "`int`": "an integer",
    "`float`": "a number",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "a table",
    "`null`": "nothing",
    "Invalid enum value": "unknown value",
}


class EffectiveConfig(NamedTuple):
    """The configuration of a repository, with the source of each value that is not a default."""

    config: Config
    sources: Mapping[Key, ValueSource]
    location: ConfigLocation
    has_file: bool
    trust: Trust


def load_config(
    start: Path, environ: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> EffectiveConfig:
    """Load the configuration of the repository that contains a folder.

    The first invalid value raises a ConfigError that names its place.
    """
    location = locate_config(start)
    text = read_config_file(location.file)
    user_file = locate_user_config(environ)
    file_layer = [*parse_file_values(text or "", location.file.name)]
    trust = find_trust(location.root, ((one.key, one.value) for one in file_layer), environ)
    layers = [
        _drop_untrusted(file_layer, trust),
        [*parse_file_values(read_config_file(user_file) or "", str(user_file), "user")],
        [*parse_environment_values(environ)],
        [*parse_flag_values(flags or {})],
    ]
    values: dict[Key, object] = {}
    sources: dict[Key, ValueSource] = {}
    for layer in layers:
        for setting in _resolve_layer(layer, values):
            values[setting.key] = setting.value
            sources[setting.key] = setting.source

    drop_references(values, trust.untrusted, (*PROMPT_PHASES, *PHASE_KEYS))
    _find_features_folder(values, sources, location.root)
    _add_registry_commands(values, sources, environ)
    for name in find_unknown_seed_variables(environ):
        _log.warning(
            "%s is not a Phasegate variable; %s", name, suggest_name(name, [*AGILEPLUS_VARIABLES])
        )

    # A job has another home folder, so nothing is trusted there, and nothing of it is needed.
    if trust.untrusted and "PHASEGATE_JOB" not in environ:
        _warn_once(describe_untrusted(trust.untrusted))

    return EffectiveConfig(
        config=_build_config(values, sources),
        sources=sources,
        location=location,
        has_file=text is not None,
        trust=trust,
    )


def _drop_untrusted(layer: list[RawSetting], trust: Trust) -> list[RawSetting]:
    """Return the settings of the repository's file that the user trusts."""
    left_out = {key for part in trust.untrusted for key, _ in part.settings}
    if left_out:
        # Mistakes in the others are reported all the same.
        for _ in _resolve_layer(layer, {}):
            pass

    return [setting for setting in layer if setting.key not in left_out]


@cache
def _warn_once(text: str) -> None:
    """Log a warning once per process: the board loads the configuration for each request."""
    _log.warning("%s", text)


def _find_features_folder(
    values: dict[Key, object], sources: dict[Key, ValueSource], root: Path
) -> None:
    """Use the features of AgilePlus where a repository has only those."""
    key = ("paths", "features")
    is_default = key not in values and not (root / PathSettings().features).exists()
    if is_default and (root / AGILEPLUS_FEATURES).is_dir():
        values[key] = AGILEPLUS_FEATURES
        sources[key] = ValueSource("folder", AGILEPLUS_FEATURES)


def _add_registry_commands(
    values: dict[Key, object], sources: dict[Key, ValueSource], environ: Mapping[str, str]
) -> None:
    """Set the command of each ACP agent that has none and whose name is in the registry."""
    for key, value in [*values.items()]:
        command = (*key[:2], "command")
        if (
            _is_agent_key(key)
            and key[2:] == ("harness",)
            and value == ACP
            and command not in values
        ):
            row = load_acp_agents(environ).get(key[1])
            if row is not None:
                values[command] = row.command
                sources[command] = ValueSource("registry", row.default_agent)


def iter_effective_values(effective: EffectiveConfig) -> Iterator[tuple[Key, object, ValueSource]]:
    """Yield each value in effect with its key and source, in the order of the tables."""
    for key, value in _iter_leaves((), effective.config):
        yield _WRITTEN_KEYS.get(key, key), value, effective.sources.get(key, DEFAULT_SOURCE)


def _resolve_layer(
    layer: Sequence[RawSetting], values: Mapping[Key, object]
) -> Iterator[RawSetting]:
    """Yield the values of a layer, with full keys and converted types.

    `agents.*` is expanded to every agent.
    """
    resolved = []
    for setting in layer:
        key = _resolve_key(setting, values)
        resolved.append(setting._replace(key=_KEY_ALIASES.get(key, key)))

    all_keys = [*values, *(setting.key for setting in resolved)]
    agents = dict.fromkeys(key[1] for key in all_keys if _is_agent_key(key))

    for setting in resolved:
        if setting.value == {} and len(setting.key) == 2:
            table, name = setting.key
            for problem in _find_missing_keys({table: {name: {}}}):
                raise _make_problem_error(problem, {setting.key: setting.source})

        value = _convert_value(setting)
        if isinstance(value, Mapping | SettingsTable):
            # An empty table sets nothing.
            continue

        if setting.key[1:2] == ("*",):
            keys = [("agents", name, *setting.key[2:]) for name in agents]
        else:
            keys = [setting.key]

        yield from (setting._replace(key=key, value=value) for key in keys)


def _is_agent_key(key: Key) -> bool:
    return key[0] == "agents" and len(key) > 2 and key[1] != "*"


def _resolve_key(setting: RawSetting, values: Mapping[Key, object]) -> Key:
    """Return the key of a setting.

    A variable is all upper case: it is matched against the keys that are already known.
    """
    if setting.source.layer != "environment":
        return setting.key

    known = {tuple(to_variable_name(part) for part in key): key for key in values}
    for length in range(len(setting.key), 1, -1):
        for variable, key in known.items():
            if variable[:length] == setting.key[:length]:
                return (*key[:length], *(part.lower() for part in setting.key[length:]))

    return _restore_phase_hyphen(tuple(part.lower() for part in setting.key))


def _restore_phase_hyphen(key: Key) -> Key:
    """Restore the hyphen of a phase key: a variable has `06_implementation` instead."""
    if key[0] in ("phases", "roles") and len(key) > 1 and re.match(r"[0-9]", key[1]):
        return (key[0], key[1].replace("_", "-"), *key[2:])
    return key


def _convert_value(setting: RawSetting) -> object:
    """Convert a value to the type of its key."""
    type_ = _find_type(setting.key, setting.source)

    try:
        return read_value(_parse_array_text(setting, type_), type_, strict=not setting.is_text)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeEncodeError) as error:
        remedy = _suggest_remedy(setting.key, setting.value, type_)
        raise ConfigError(
            f"{_format_source(setting.source)}{'.'.join(setting.key)}: {_describe_error(error)}",
            remedy,
        ) from error


def _describe_error(error: Exception) -> str:
    """Describe an invalid value in the terms of the reference documentation."""
    if isinstance(error, UnicodeEncodeError):
        return "not valid UTF-8"

    message = str(error).partition(" - at `")[0]
    message = re.sub(r" matching regex .*", " of another form", message)
    for term, readable in _READABLE_TERMS.items():
        message = message.replace(term, readable)

    return f"{message[:1].lower()}{message[1:]}"


def _parse_array_text(setting: RawSetting, type_: Any) -> object:
    """Parse a text as a TOML array if the type is one; otherwise return the value unchanged."""
    is_array = tuple in (get_origin(type_), *(get_origin(option) for option in get_args(type_)))
    if setting.is_text and is_array:
        return tomllib.loads(f"value = {setting.value}")["value"]
    return setting.value


def _find_type(key: Key, source: ValueSource) -> Any:
    """Return the type of a key. Raises ConfigError for an unknown key."""
    type_: Any = Config

    for depth, name in enumerate(key):
        if get_origin(type_) is not None and issubclass(get_origin(type_), Mapping):
            type_ = get_args(type_)[1]
        elif isinstance(type_, type) and issubclass(type_, SettingsTable):
            fields = {field.name: field.type for field in msgspec.structs.fields(type_)}
            if name not in fields:
                raise _make_unknown_key_error(key[:depth], name, list(fields), source)

            type_ = fields[name]
        else:
            raise ConfigError(
                f"{_format_source(source)}{'.'.join(key[:depth])} is a single value, not a table",
                f"set {'.'.join(key[:depth])} itself, not a key below it",
            )

    return type_


def _make_unknown_key_error(
    table: Key, name: str, known: list[str], source: ValueSource
) -> ConfigError:
    """Create the error for a key or variable that is not a setting."""
    if source.layer == "environment" and not table:
        return ConfigError(
            f"{source.place} is not a setting",
            suggest_name(source.place.lower(), _list_fixed_variables()),
        )

    if table:
        inside = f" in [{'.'.join(table)}]"
    else:
        inside = ""

    return ConfigError(
        f"{_format_source(source)}unknown key `{name}`{inside}", suggest_name(name, known)
    )


def _list_fixed_variables() -> list[str]:
    """Return the variables whose names do not contain a user-defined name."""
    return [f"{ENV_PREFIX}{'__'.join(key)}".upper() for key, _ in _iter_leaves((), Config())]


def _format_source(source: ValueSource) -> str:
    """Return the line or variable as a prefix; a flag has none, since its key is shown anyway."""
    if source.place and source.layer != "flag":
        return f"{source.place}: "
    return ""


def _suggest_remedy(key: Key, value: object, type_: Any) -> str:
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        return suggest_name(str(value), [*type_])
    return _REMEDIES.get(key[-1], "see docs/reference/configuration.md for the values of each key")


def _build_config(values: Mapping[Key, object], sources: Mapping[Key, ValueSource]) -> Config:
    """Build the configuration from all values, and check that they are consistent."""
    tree: dict[str, Any] = {}

    for key, value in values.items():
        table = tree
        for name in key[:-1]:
            table = table.setdefault(name, {})

        table[key[-1]] = value

    for problem in _find_missing_keys(tree):
        raise _make_problem_error(problem, sources)

    config = read_value(tree, Config)
    for problem in find_config_problems(config):
        raise _make_problem_error(problem, sources)

    return config


def _find_missing_keys(
    tree: Mapping[str, Mapping[str, Mapping[str, object]]],
) -> Iterator[ConfigProblem]:
    for table, (field, remedy) in _REQUIRED_KEYS.items():
        for name, entry in tree.get(table, {}).items():
            if field not in entry:
                yield ConfigProblem((table, name), f"`{field}` is missing", remedy)


def _make_problem_error(problem: ConfigProblem, sources: Mapping[Key, ValueSource]) -> ConfigError:
    source = next(
        (sources[key] for key in sources if key[: len(problem.key)] == problem.key), DEFAULT_SOURCE
    )
    return ConfigError(
        f"{_format_source(source)}{'.'.join(problem.key)}: {problem.message}", problem.remedy
    )


def _iter_leaves(key: Key, value: object) -> Iterator[tuple[Key, object]]:
    if isinstance(value, SettingsTable):
        for name in value.__struct_fields__:
            yield from _iter_leaves((*key, name), getattr(value, name))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _iter_leaves((*key, name), inner)
    else:
        yield key, value
