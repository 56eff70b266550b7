"""`phasegate config`: show the values in effect and their sources."""

from __future__ import annotations

import sys

import click
import msgspec

from phasegate.config.layers import ValueSource
from phasegate.config.load import EffectiveConfig, iter_effective_values
from phasegate.engine.project.settings import find_settings_place, load_settings
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)

set_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a value, for example run.parallel=3. Can be repeated.",
)


@click.group(cls=Group)
def config() -> None:
    """Show the configuration and the source of each value.

    Flags override environment variables, which override phasegate.toml, which overrides the
    defaults.
    """


@config.command("show")
@set_option
@json_option
def show_(settings: tuple[str, ...], as_json: bool) -> None:
    """Show every value in effect with its source.

    \b
    Examples:
      phasegate config show
      PHASEGATE_RUN__PARALLEL=3 phasegate config show
      phasegate config show --set agents.claude.timeout_s=600 --json
    """
    effective = load_settings(current_folder(), _parse_flags(settings))
    rows = [
        (".".join(key), value, source) for key, value, source in iter_effective_values(effective)
    ]
    data = {
        key: {"value": value, "source": source.layer, "place": source.place}
        for key, value, source in rows
    }
    text = "\n".join(
        f"{key} = {make_printable(_format_value(value))}{_format_source(source)}"
        for key, value, source in rows
    )
    print_result({"file": _format_file(effective), "values": data}, text, as_json)


@config.command()
@json_option
def path(as_json: bool) -> int:
    """Print the path of the configuration file. Exit 1: it does not exist.

    \b
    Example:
      phasegate config path
    """
    file = find_settings_place(current_folder()).file
    exists = file.is_file()

    if exists or as_json:
        print_result(
            {"file": make_printable(file), "exists": exists},
            make_printable(file),
            as_json,
        )
    else:
        print(f"there is no {make_printable(file)}", file=sys.stderr)
    return int(not exists)


def _parse_flags(settings: tuple[str, ...]) -> dict[str, str]:
    flags = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(f"--set {setting} has no `=`", "for example: --set run.parallel=3")
        flags[key.strip()] = value

    return flags


def _format_file(effective: EffectiveConfig) -> str | None:
    if effective.has_file:
        return make_printable(effective.location.file)
    return None


def _format_value(value: object) -> str:
    if value is None:
        return "(not set)"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return msgspec.json.encode(value).decode()


def _format_source(source: ValueSource) -> str:
    if source.place:
        return f"  # {source.layer}: {source.place}"
    return ""
