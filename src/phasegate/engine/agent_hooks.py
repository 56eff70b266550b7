"""`hook install` and `hook remove`: our entry in the settings of an agent program, and nothing else in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.files import open_folder
from phasegate.files.durable import replace_at
from phasegate.files.plain_text import PlainFile, read_plain_file
from phasegate.rules.harnesses import Hooks
from phasegate.rules.hook_settings import Refused, with_hook, without_hook

LARGEST_SETTINGS_BYTES = 4_000_000
_NEW_FILE_MODE = 0o644


class Change(NamedTuple):
    """A settings file and what became of it."""

    path: Path
    outcome: str


def install(root: Path, hooks: Hooks) -> Change:
    """Put `phasegate next` into the program's settings of this repository."""
    path = root / hooks.file
    stored = _stored(path)
    try:
        text = with_hook(stored.text if stored else None, hooks)
    except Refused as error:
        raise _refusal(hooks, error) from error
    if stored and text == stored.text:
        return Change(path, "unchanged")
    _write(path, text, stored.mode if stored else _NEW_FILE_MODE)
    return Change(path, "hook added" if stored else "written")


def remove(root: Path, hooks: Hooks) -> Change:
    """Take our entry out; a file that holds nothing else, because we made it, goes too."""
    path = root / hooks.file
    stored = _stored(path)
    if stored is None:
        return Change(path, "not there")
    try:
        text = without_hook(stored.text, hooks)
    except Refused as error:
        raise _refusal(hooks, error) from error
    if text == stored.text:
        return Change(path, "unchanged")
    if text is None:
        path.unlink()
        _remove_if_empty(path.parent)
        return Change(path, "removed")
    _write(path, text, stored.mode)
    return Change(path, "hook removed")


def _stored(path: Path) -> PlainFile | None:
    return read_plain_file(path, LARGEST_SETTINGS_BYTES) if os.path.lexists(path) else None


def _refusal(hooks: Hooks, error: Refused) -> ConfigError:
    remedy = f"it was left as it is; fix it, or run this in a hook of your own: {hooks.command}"
    return ConfigError(str(error), remedy)


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


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
