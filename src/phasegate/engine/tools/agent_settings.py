"""Our own entry in the settings of an agent program, a hook or an MCP server, and nothing else in
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from phasegate.core.agents.harnesses import HookFile, McpConfigFile
from phasegate.core.agents.program_settings import (
    SERVER_COMMAND,
    UnsupportedSettings,
    add_hook,
    add_server,
    remove_hook,
    remove_server,
)
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.files import open_folder
from phasegate.files.durable_write import replace_file_at
from phasegate.files.text_file import TextFile, read_text_file

MAX_SETTINGS_BYTES = 4_000_000
_NEW_FILE_MODE = 0o644


class SettingsEntry(NamedTuple):
    """An entry of ours in a file: how it is put in, and taken out.

    `by_hand` is what a person would do instead.
    """

    what: str
    file: str
    insert: Callable[[str | None], str]
    remove: Callable[[str], str | None]
    manual_hint: str


def hook_entry(hooks: HookFile) -> SettingsEntry:
    """`phasegate next` in a program's hooks."""
    by_hand = f"run this in a hook of your own: {hooks.command}"
    return SettingsEntry(
        what="hook",
        file=hooks.file,
        insert=lambda text: add_hook(text, hooks),
        remove=lambda text: remove_hook(text, hooks),
        manual_hint=by_hand,
    )


def server_entry(place: McpConfigFile) -> SettingsEntry:
    """`phasegate mcp` among a program's MCP servers."""
    by_hand = f"add a server of your own with this command: {' '.join(SERVER_COMMAND)}"
    return SettingsEntry(
        what="server",
        file=place.file,
        insert=lambda text: add_server(text, place),
        remove=lambda text: remove_server(text, place),
        manual_hint=by_hand,
    )


class SettingsChange(NamedTuple):
    """A settings file, what becomes of it, and its text before and after; None: there is no file."""

    path: Path
    outcome: str
    before: str | None
    after: str | None
    mode: int


def plan_install(root: Path, entry: SettingsEntry) -> SettingsChange:
    """What putting our entry in would change."""
    path = root / entry.file
    stored = _read_stored(root / entry.file)
    try:
        text = entry.insert(stored.text if stored else None)
    except UnsupportedSettings as error:
        raise _refusal_error(entry, error) from error

    if stored is None:
        return SettingsChange(
            path=path, outcome="written", before=None, after=text, mode=_NEW_FILE_MODE
        )

    if text == stored.text:
        outcome = "unchanged"
    else:
        outcome = f"{entry.what} added"

    return SettingsChange(
        path=path, outcome=outcome, before=stored.text, after=text, mode=stored.mode
    )


def plan_removal(root: Path, entry: SettingsEntry) -> SettingsChange:
    """What taking our entry out would change.

    A file that holds nothing else, because we made it, goes too.
    """
    path = root / entry.file
    stored = _read_stored(root / entry.file)
    if stored is None:
        return SettingsChange(
            path=path, outcome="not there", before=None, after=None, mode=_NEW_FILE_MODE
        )

    try:
        text = entry.remove(stored.text)
    except UnsupportedSettings as error:
        raise _refusal_error(entry, error) from error

    if text is None:
        outcome = "removed"
    elif text == stored.text:
        outcome = "unchanged"
    else:
        outcome = f"{entry.what} removed"

    return SettingsChange(
        path=path, outcome=outcome, before=stored.text, after=text, mode=stored.mode
    )


def apply_change(change: SettingsChange) -> None:
    """Make the change."""
    if change.after == change.before:
        return
    if change.after is not None:
        _write_file(change.path, change.after, change.mode)
        return

    change.path.unlink()
    try:
        change.path.parent.rmdir()
    except OSError:
        # It holds more, or is the repository itself
        return


def _read_stored(path: Path) -> TextFile | None:
    if os.path.lexists(path):
        return read_text_file(path, MAX_SETTINGS_BYTES)
    return None


def _refusal_error(entry: SettingsEntry, error: UnsupportedSettings) -> ConfigError:
    return ConfigError(str(error), f"it was left as it is; fix it, or {entry.manual_hint}")


def _write_file(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        folder = open_folder(path.parent)
        try:
            replace_file_at(folder, path.name, text.encode(), mode)
        finally:
            os.close(folder)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"{path} cannot be written: {error.strerror}",
            "check what is in its place, and the permissions",
        ) from error
