"""An agent program's list of MCP servers, with ours in it and without."""

from __future__ import annotations

import tomllib

from phasegate.rules.harnesses import McpPlace
from phasegate.rules.hook_settings import Refused, Settings, read_object, written_like

NAME = "phasegate"
COMMAND = ("phasegate", "mcp")


def with_server(text: str | None, place: McpPlace) -> str:
    """The settings with our server in them; the same text if it is there already."""
    if place.file.endswith(".toml"):
        return _with_table(text or "", place)
    settings = read_object(text, place.file) if text is not None else {}
    servers = _servers(settings, place)
    if text is not None and servers.get(NAME) == _entry(place):
        return text
    _refuse_other(servers, place)
    settings[place.table] = {**servers, NAME: _entry(place)}
    return written_like(settings, text)


def without_server(text: str, place: McpPlace) -> str | None:
    """The settings without our server; None if nothing was in the file but what we put there."""
    if text == with_server(None, place):
        return None
    if place.file.endswith(".toml"):
        return _without_table(text, place)
    settings = read_object(text, place.file)
    servers = _servers(settings, place)
    if NAME not in servers:
        return text
    _refuse_other(servers, place)
    kept = {name: server for name, server in servers.items() if name != NAME}
    if kept:
        settings[place.table] = kept
    else:
        del settings[place.table]
    return written_like(settings, text)


def _entry(place: McpPlace) -> Settings:
    if place.whole_command:
        return {"type": "local", "command": [*COMMAND]}
    return {"command": COMMAND[0], "args": [*COMMAND[1:]]}


def _servers(settings: Settings, place: McpPlace) -> Settings:
    servers = settings.get(place.table, {})
    if not isinstance(servers, dict):
        raise Refused(f"{place.file}: {place.table} is not an object")
    return servers


def _refuse_other(servers: Settings, place: McpPlace) -> None:
    """An entry of our name that is not as we write it is the person's: theirs to change."""
    if NAME in servers and servers[NAME] != _entry(place):
        raise Refused(f"{place.file}: {place.table}.{NAME} is there already, and is another one")


def _table(place: McpPlace) -> str:
    arguments = ", ".join(f'"{word}"' for word in COMMAND[1:])
    return f'[{place.table}.{NAME}]\ncommand = "{COMMAND[0]}"\nargs = [{arguments}]\n'


def _read_tables(text: str, place: McpPlace) -> Settings:
    try:
        return _servers(tomllib.loads(text), place)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{place.file}: {error}") from error


def _with_table(text: str, place: McpPlace) -> str:
    servers = _read_tables(text, place)
    _refuse_other(servers, place)
    if NAME in servers:
        return text
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{_table(place)}"


def _without_table(text: str, place: McpPlace) -> str:
    servers = _read_tables(text, place)
    if NAME not in servers:
        return text
    _refuse_other(servers, place)
    before, ours, after = text.partition(_table(place))
    if not ours:
        raise Refused(f"{place.file}: {place.table}.{NAME} is not written as we write it; take it out by hand")
    return before.removesuffix("\n") + after if before.endswith("\n\n") else before + after
