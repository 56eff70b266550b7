"""Our own entry in the settings of an agent program, a hook or an MCP server, and nothing else in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from phasegate.core.agents.harnesses import Hooks, McpPlace
from phasegate.core.agents.program_settings import (
    COMMAND,
    Refused,
    with_hook,
    with_server,
    without_hook,
    without_server,
)
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.files import open_folder
from phasegate.files.durable_write import replace_at
from phasegate.files.text_file import PlainFile, read_plain_file

LARGEST_SETTINGS_BYTES = 4_000_000
_NEW_FILE_MODE = 0o644


class OwnEntry(NamedTuple):
    """An entry of ours in a file: how it is put in, and taken out. `by_hand` is what a person would do instead."""

    what: str
    file: str
    put_in: Callable[[str | None], str]
    take_out: Callable[[str], str | None]
    by_hand: str


def hook_entry(hooks: Hooks) -> OwnEntry:
    """`phasegate next` in a program's hooks."""
    by_hand = f"run this in a hook of your own: {hooks.command}"
    return OwnEntry(
        "hook", hooks.file, lambda text: with_hook(text, hooks), lambda text: without_hook(text, hooks), by_hand
    )


def server_entry(place: McpPlace) -> OwnEntry:
    """`phasegate mcp` among a program's MCP servers."""
    by_hand = f"add a server of your own with this command: {' '.join(COMMAND)}"
    return OwnEntry(
        "server", place.file, lambda text: with_server(text, place), lambda text: without_server(text, place), by_hand
    )


class SettingsChange(NamedTuple):
    """A settings file, what becomes of it, and its text before and after; None: there is no file."""

    path: Path
    outcome: str
    before: str | None
    after: str | None
    mode: int


def installing(root: Path, entry: OwnEntry) -> SettingsChange:
    """What putting our entry in would change."""
    path, stored = root / entry.file, _stored(root / entry.file)
    try:
        text = entry.put_in(stored.text if stored else None)
    except Refused as error:
        raise _refusal(entry, error) from error
    if stored is None:
        return SettingsChange(path, "written", None, text, _NEW_FILE_MODE)
    outcome = "unchanged" if text == stored.text else f"{entry.what} added"
    return SettingsChange(path, outcome, stored.text, text, stored.mode)


def removing(root: Path, entry: OwnEntry) -> SettingsChange:
    """What taking our entry out would change; a file that holds nothing else, because we made it, goes too."""
    path, stored = root / entry.file, _stored(root / entry.file)
    if stored is None:
        return SettingsChange(path, "not there", None, None, _NEW_FILE_MODE)
    try:
        text = entry.take_out(stored.text)
    except Refused as error:
        raise _refusal(entry, error) from error
    outcome = "removed" if text is None else "unchanged" if text == stored.text else f"{entry.what} removed"
    return SettingsChange(path, outcome, stored.text, text, stored.mode)


def carry_out(change: SettingsChange) -> None:
    """Make the change."""
    if change.after == change.before:
        return
    if change.after is not None:
        _write(change.path, change.after, change.mode)
        return
    change.path.unlink()
    try:
        change.path.parent.rmdir()
    except OSError:
        return  # it holds more, or is the repository itself


def _stored(path: Path) -> PlainFile | None:
    return read_plain_file(path, LARGEST_SETTINGS_BYTES) if os.path.lexists(path) else None


def _refusal(entry: OwnEntry, error: Refused) -> ConfigError:
    return ConfigError(str(error), f"it was left as it is; fix it, or {entry.by_hand}")


def _write(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        folder = open_folder(path.parent)
        try:
            replace_at(folder, path.name, text.encode(), mode)
        finally:
            os.close(folder)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"{path} cannot be written: {error.strerror}", "check what is in its place, and the permissions"
        ) from error
