"""Add and remove Phasegate's hook or MCP server in an agent program's settings.

Everything else in the file stays unchanged.
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
from phasegate.files.durable_write import replace_file
from phasegate.files.text_file import TextFile, read_text_file

MAX_SETTINGS_BYTES = 4_000_000
_NEW_FILE_MODE = 0o644


class SettingsEntry(NamedTuple):
    """An entry of Phasegate in a settings file, with the functions that insert and remove it.

    `manual_hint` says how the user can add it manually.
    """

    what: str
    file: str
    insert: Callable[[str | None], str]
    remove: Callable[[str], str | None]
    manual_hint: str


def hook_entry(hooks: HookFile) -> SettingsEntry:
    """Return the entry that runs `phasegate next` in a program's hooks."""
    return SettingsEntry(
        what="hook",
        file=hooks.file,
        insert=lambda text: add_hook(text, hooks),
        remove=lambda text: remove_hook(text, hooks),
        manual_hint=f"run this in your own hook: {hooks.command}",
    )


def server_entry(config: McpConfigFile) -> SettingsEntry:
    """Return the entry of `phasegate mcp` among a program's MCP servers."""
    return SettingsEntry(
        what="server",
        file=config.file,
        insert=lambda text: add_server(text, config),
        remove=lambda text: remove_server(text, config),
        manual_hint=f"add a server with this command: {' '.join(SERVER_COMMAND)}",
    )


class SettingsChange(NamedTuple):
    """A settings file with its outcome, and its text before and after; None: no file."""

    path: Path
    outcome: str
    before: str | None
    after: str | None
    mode: int


def plan_install(root: Path, entry: SettingsEntry) -> SettingsChange:
    """Return the change that inserts the entry."""
    path = root / entry.file
    stored = _read_stored(path)
    try:
        text = entry.insert(stored.text if stored else None)
    except UnsupportedSettings as error:
        raise _refusal_error(entry, error) from error

    if stored is None:
        return SettingsChange(
            path=path, outcome="written", before=None, after=text, mode=_NEW_FILE_MODE
        )

    outcome = "unchanged" if text == stored.text else f"{entry.what} added"
    return SettingsChange(
        path=path, outcome=outcome, before=stored.text, after=text, mode=stored.mode
    )


def plan_removal(root: Path, entry: SettingsEntry) -> SettingsChange:
    """Return the change that removes the entry.

    A file with nothing else in it is deleted: it was created for the entry.
    """
    path = root / entry.file
    stored = _read_stored(path)
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
    """Write the changed settings, or delete a file that held nothing else and its empty folder."""
    if change.after == change.before:
        return
    if change.after is not None:
        _write_file(change.path, change.after, change.mode)
        return

    change.path.unlink()
    try:
        change.path.parent.rmdir()
    except OSError:
        # The folder is not empty, or is the repository itself.
        return


def _read_stored(path: Path) -> TextFile | None:
    if os.path.lexists(path):
        return read_text_file(path, MAX_SETTINGS_BYTES)
    return None


def _refusal_error(entry: SettingsEntry, error: UnsupportedSettings) -> ConfigError:
    return ConfigError(str(error), f"the file is unchanged; fix it, or {entry.manual_hint}")


def _write_file(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        replace_file(path, text.encode(), mode)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"{path} cannot be written: {error.strerror}",
            "check the path and its permissions",
        ) from error
