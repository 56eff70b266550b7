"""Add our hook and MCP server to an agent program's settings in a repository, and remove them.

A hook after a turn can show the user a message (`systemMessage`): verified with Claude Code 2.1,
Codex 0.166, Gemini CLI 0.61 and Qwen Code 0.24. Cursor's hook at that point could only send a
message to the agent and so start the next turn by itself: there the agent gets the steps at the
start of a session (from its documentation; not tested).
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from phasegate.core.agents.harnesses import HookFile, McpConfigFile

OUR_HOOK_COMMAND = re.compile(r"(?:\S*/)?(?:phasegate|agileplus) next(?: |$)")
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)


# Parsed settings of another program: only our own entry in it has a known type
SettingsTree = dict[str, Any]


class UnsupportedSettings(ValueError):
    """Settings that cannot be changed safely; the message says where and why."""


def add_hook(text: str | None, hooks: HookFile) -> str:
    """Return the settings with Phasegate's hook; the same text if they already have it."""
    settings: SettingsTree
    if text is None:
        settings = dict(hooks.initial_entries)
    else:
        settings = parse_hook_settings(text, hooks)

    ours = [
        handler
        for handler in _handlers(settings, hooks)
        if OUR_HOOK_COMMAND.match(_command(handler))
    ]
    if text is not None and ours == [_handler(hooks)]:
        return text

    _remove_our_handlers(settings, hooks)
    if hooks.grouped:
        entry = {"hooks": [_handler(hooks)]}
    else:
        entry = _handler(hooks)

    settings.setdefault("hooks", {}).setdefault(hooks.event, []).append(entry)
    return serialize_settings(settings, text)


def remove_hook(text: str, hooks: HookFile) -> str | None:
    """Return the settings without Phasegate's hook, or None if the file contains nothing else."""
    if text == add_hook(None, hooks):
        return None

    settings = parse_hook_settings(text, hooks)
    if _remove_our_handlers(settings, hooks):
        return serialize_settings(settings, text)

    return text


def parse_json_object(text: str, file: str) -> SettingsTree:
    """Parse a file with one JSON object that can be written back without loss."""
    try:
        settings = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except json.JSONDecodeError as error:
        raise UnsupportedSettings(f"{file}:{error.lineno}:{error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise UnsupportedSettings(f"{file}: {error}") from error

    if not isinstance(settings, dict):
        raise UnsupportedSettings(f"{file}: the file is not an object")
    return dict(settings)


def parse_hook_settings(text: str, hooks: HookFile) -> SettingsTree:
    """Parse the settings, or raise if they cannot be changed without loss."""
    settings = parse_json_object(text, hooks.file)
    _require(isinstance(settings.get("hooks", {}), dict), hooks, "hooks", "an object")
    entries = settings.get("hooks", {}).get(hooks.event, [])
    _require(isinstance(entries, list), hooks, f"hooks.{hooks.event}", "a list")

    for index, entry in enumerate(entries):
        _require(isinstance(entry, dict), hooks, f"hooks.{hooks.event}[{index}]", "an object")
        if hooks.grouped:
            handlers = entry.get("hooks", [])
        else:
            handlers = []

        is_valid = isinstance(handlers, list) and all(
            isinstance(handler, dict) for handler in handlers
        )
        _require(is_valid, hooks, f"hooks.{hooks.event}[{index}].hooks", "a list of objects")

    return settings


def _require(holds: bool, hooks: HookFile, path: str, expected: str) -> None:
    if not holds:
        raise UnsupportedSettings(f"{hooks.file}: {path} is not {expected}")


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> SettingsTree:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice"
        )

    return entries


def _handler(hooks: HookFile) -> SettingsTree:
    if hooks.grouped:
        return {"type": "command", "command": hooks.command}
    return {"command": hooks.command}


def _command(handler: SettingsTree) -> str:
    command = handler.get("command", "")
    if isinstance(command, str):
        return command
    return ""


def _handlers(settings: SettingsTree, hooks: HookFile) -> list[SettingsTree]:
    entries = settings.get("hooks", {}).get(hooks.event, [])
    if hooks.grouped:
        return [handler for entry in entries for handler in entry.get("hooks", [])]
    return [*entries]


def _remove_our_handlers(settings: SettingsTree, hooks: HookFile) -> bool:
    """Remove Phasegate's handlers, and containers that become empty.

    Return whether there were any.
    """
    if not any(OUR_HOOK_COMMAND.match(_command(handler)) for handler in _handlers(settings, hooks)):
        return False

    events: SettingsTree = settings["hooks"]
    events[hooks.event] = [
        kept
        for entry in events[hooks.event]
        if (kept := _strip_our_handlers(entry, hooks)) is not None
    ]
    if not events[hooks.event]:
        del events[hooks.event]
    if not events:
        del settings["hooks"]

    return True


def _strip_our_handlers(entry: SettingsTree, hooks: HookFile) -> SettingsTree | None:
    """Return a hook entry without Phasegate's handlers, or None if nothing is left."""
    if not hooks.grouped:
        if OUR_HOOK_COMMAND.match(_command(entry)):
            return None
        return entry

    kept = [
        handler
        for handler in entry.get("hooks", [])
        if not OUR_HOOK_COMMAND.match(_command(handler))
    ]
    if len(kept) == len(entry.get("hooks", [])):
        return entry
    if kept:
        return {**entry, "hooks": kept}

    return None


def serialize_settings(settings: SettingsTree, original: str | None) -> str:
    """Serialize the settings with the indentation and line ends of the original."""
    if original and (found := _INDENT.search(original)):
        indent = found[1]
    else:
        indent = "  "

    text = json.dumps(settings, indent=indent, ensure_ascii=original is None or original.isascii())
    if original is None or original.endswith("\n"):
        end = "\n"
    else:
        end = ""

    if original and "\r\n" in original:
        return (text + end).replace("\n", "\r\n")

    return text + end


SERVER_NAME = "phasegate"
SERVER_COMMAND = ("phasegate", "mcp")


def add_server(text: str | None, place: McpConfigFile) -> str:
    """Return the settings with Phasegate's server; the same text if they already have it."""
    if place.file.endswith(".toml"):
        return _add_toml_table(text or "", place)

    if text is not None:
        settings = parse_json_object(text, place.file)
    else:
        settings = {}

    servers = _servers(settings, place)
    if text is not None and servers.get(SERVER_NAME) == _server_entry(place):
        return text

    _refuse_foreign_entry(servers, place)
    settings[place.table] = {**servers, SERVER_NAME: _server_entry(place)}

    return serialize_settings(settings, text)


def remove_server(text: str, place: McpConfigFile) -> str | None:
    """Return the settings without Phasegate's server, or None if the file contains nothing else."""
    if text == add_server(None, place):
        return None
    if place.file.endswith(".toml"):
        return _remove_toml_table(text, place)

    settings = parse_json_object(text, place.file)
    servers = _servers(settings, place)
    if SERVER_NAME not in servers:
        return text

    _refuse_foreign_entry(servers, place)
    kept = {name: server for name, server in servers.items() if name != SERVER_NAME}
    if kept:
        settings[place.table] = kept
    else:
        del settings[place.table]

    return serialize_settings(settings, text)


def _server_entry(place: McpConfigFile) -> SettingsTree:
    if place.command_is_list:
        return {"type": "local", "command": [*SERVER_COMMAND]}
    return {"command": SERVER_COMMAND[0], "args": [*SERVER_COMMAND[1:]]}


def _servers(settings: SettingsTree, place: McpConfigFile) -> SettingsTree:
    servers = settings.get(place.table, {})
    if not isinstance(servers, dict):
        raise UnsupportedSettings(f"{place.file}: {place.table} is not an object")
    return servers


def _refuse_foreign_entry(servers: SettingsTree, place: McpConfigFile) -> None:
    """Raise an error for an entry under Phasegate's name that Phasegate did not write.

    Only the user may change such an entry.
    """
    if SERVER_NAME in servers and servers[SERVER_NAME] != _server_entry(place):
        raise UnsupportedSettings(
            f"{place.file}: {place.table}.{SERVER_NAME} already exists with other values"
        )


def _render_toml_table(place: McpConfigFile) -> str:
    arguments = ", ".join(f'"{word}"' for word in SERVER_COMMAND[1:])
    return f'[{place.table}.{SERVER_NAME}]\ncommand = "{SERVER_COMMAND[0]}"\nargs = [{arguments}]\n'


def _read_toml_servers(text: str, place: McpConfigFile) -> SettingsTree:
    try:
        return _servers(tomllib.loads(text), place)
    except tomllib.TOMLDecodeError as error:
        raise UnsupportedSettings(f"{place.file}: {error}") from error


def _add_toml_table(text: str, place: McpConfigFile) -> str:
    """Return the TOML text with Phasegate's MCP server appended."""
    servers = _read_toml_servers(text, place)
    _refuse_foreign_entry(servers, place)
    if SERVER_NAME in servers:
        return text

    if not text:
        gap = ""
    else:
        gap = "\n" if text.endswith("\n") else "\n\n"

    return f"{text}{gap}{_render_toml_table(place)}"


def _remove_toml_table(text: str, place: McpConfigFile) -> str:
    """Return the TOML text without Phasegate's MCP server; refuse an edited one."""
    servers = _read_toml_servers(text, place)
    if SERVER_NAME not in servers:
        return text

    _refuse_foreign_entry(servers, place)
    before, ours, after = text.partition(_render_toml_table(place))
    if not ours:
        raise UnsupportedSettings(
            f"{place.file}: {place.table}.{SERVER_NAME} was edited; remove it by hand"
        )

    if before.endswith("\n\n"):
        return before.removesuffix("\n") + after

    return before + after
