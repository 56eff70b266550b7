"""An agent program's own settings in a repository, with our hook and our MCP server in them, and without.

A hook after a turn can show the person a message (`systemMessage`): seen with Claude Code 2.1, Codex 0.166, Gemini CLI
0.61 and Qwen Code 0.24. Cursor's hook at that point could only send a message to the agent, and so start the next turn
by itself: there the steps are told to the agent when a session begins (from its documentation; not run).
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from phasegate.core.agents.harnesses import Hooks, McpPlace

OURS = re.compile(r"(?:\S*/)?(?:phasegate|agileplus) next(?: |$)")
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)


Settings = dict[str, Any]  # another program's file: nothing but our own entry in it is ours to know


class Refused(ValueError):
    """Settings that are not touched; the message says where and why."""


def with_hook(text: str | None, hooks: Hooks) -> str:
    """The settings with our hook in them; the same text if it is there already."""
    settings: Settings = {**dict(hooks.head)} if text is None else read_settings(text, hooks)
    ours = [handler for handler in _handlers(settings, hooks) if OURS.match(_command(handler))]
    if text is not None and ours == [_handler(hooks)]:
        return text
    _take_out(settings, hooks)
    entry = {"hooks": [_handler(hooks)]} if hooks.grouped else _handler(hooks)
    settings.setdefault("hooks", {}).setdefault(hooks.event, []).append(entry)
    return written_like(settings, text)


def without_hook(text: str, hooks: Hooks) -> str | None:
    """The settings without our hook; None if nothing was in the file but what we put there."""
    if text == with_hook(None, hooks):
        return None
    settings = read_settings(text, hooks)
    return written_like(settings, text) if _take_out(settings, hooks) else text


def read_object(text: str, file: str) -> Settings:
    """A file that holds one JSON object, such as can be written again without a loss."""
    try:
        settings = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise Refused(f"{file}:{error.lineno}:{error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise Refused(f"{file}: {error}") from error
    if not isinstance(settings, dict):
        raise Refused(f"{file}: the file is not an object")
    return dict(settings)


def read_settings(text: str, hooks: Hooks) -> Settings:
    """The settings, if they are such as we can change without a loss."""
    settings = read_object(text, hooks.file)
    _expect(isinstance(settings.get("hooks", {}), dict), hooks, "hooks", "an object")
    entries = settings.get("hooks", {}).get(hooks.event, [])
    _expect(isinstance(entries, list), hooks, f"hooks.{hooks.event}", "a list")
    for at, entry in enumerate(entries):
        _expect(isinstance(entry, dict), hooks, f"hooks.{hooks.event}[{at}]", "an object")
        inner = entry.get("hooks", []) if hooks.grouped else []
        fits = isinstance(inner, list) and all(isinstance(handler, dict) for handler in inner)
        _expect(fits, hooks, f"hooks.{hooks.event}[{at}].hooks", "a list of objects")
    return settings


def _expect(holds: bool, hooks: Hooks, place: str, what: str) -> None:
    if not holds:
        raise Refused(f"{hooks.file}: {place} is not {what}")


def _without_repeats(pairs: list[tuple[str, object]]) -> Settings:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return found


def _handler(hooks: Hooks) -> Settings:
    return {"type": "command", "command": hooks.command} if hooks.grouped else {"command": hooks.command}


def _command(handler: Settings) -> str:
    command = handler.get("command", "")
    return command if isinstance(command, str) else ""


def _handlers(settings: Settings, hooks: Hooks) -> list[Settings]:
    entries = settings.get("hooks", {}).get(hooks.event, [])
    return [handler for entry in entries for handler in entry.get("hooks", [])] if hooks.grouped else [*entries]


def _take_out(settings: Settings, hooks: Hooks) -> bool:
    """Take out our handlers, and what holds nothing any more because of that; whether there were any."""
    if not any(OURS.match(_command(handler)) for handler in _handlers(settings, hooks)):
        return False
    events: Settings = settings["hooks"]
    events[hooks.event] = [kept for entry in events[hooks.event] if (kept := _without_ours(entry, hooks)) is not None]
    if not events[hooks.event]:
        del events[hooks.event]
    if not events:
        del settings["hooks"]
    return True


def _without_ours(entry: Settings, hooks: Hooks) -> Settings | None:
    if not hooks.grouped:
        return None if OURS.match(_command(entry)) else entry
    kept = [handler for handler in entry.get("hooks", []) if not OURS.match(_command(handler))]
    return entry if len(kept) == len(entry.get("hooks", [])) else {**entry, "hooks": kept} if kept else None


def written_like(settings: Settings, like: str | None) -> str:
    """The settings as text, indented as they were."""
    indent = found[1] if like and (found := _INDENT.search(like)) else "  "
    text = json.dumps(settings, indent=indent, ensure_ascii=like is None or like.isascii())
    end = "\n" if like is None or like.endswith("\n") else ""
    return (text + end).replace("\n", "\r\n") if like and "\r\n" in like else text + end


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
