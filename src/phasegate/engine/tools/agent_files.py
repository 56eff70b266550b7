"""Copy, check and fix agent files in the user's folders.

Symbolic links are not followed, and a file is replaced as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError
from phasegate.files.block_reader import reject_path_outside
from phasegate.files.durable_write import replace_file_at
from phasegate.files.text_file import (
    TextFile,
    read_text_file,
    unreadable_file_error,
    unusable_file_error,
)
from phasegate.prompts.agent_files import AgentFileCheck, ShippedAgentFile, check_agent_file
from phasegate.prompts.agent_files import load_shipped_files as load_shipped_files
from phasegate.prompts.templates import find_project_root

MAX_FILE_BYTES = 1_000_000
_NEW_FILE_MODE = 0o644


class AgentFileChange(NamedTuple):
    """A file, its outcome, and the text to write, if any."""

    path: Path
    outcome: str
    text: str = ""
    mode: int = _NEW_FILE_MODE


def install_agent_files(folder: Path, force: bool) -> list[AgentFileChange]:
    """Copy the shipped files into a folder; keep one that differs, unless `force` is set."""
    reject_path_outside(find_project_root(), folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create the folder {folder}: {error.strerror}", "choose a writable folder"
        ) from error

    return _write_changes(
        [_plan_install(folder / f"{file.name}.md", file, force) for file in load_shipped_files()]
    )


def sync_agent_files(paths: Sequence[Path]) -> list[AgentFileChange]:
    """Update the prompt section of each file. All files are read before the first is written."""
    return _write_changes([_plan_sync(path) for path in find_agent_files(paths)])


def check_agent_files(paths: Sequence[Path]) -> dict[Path, list[str]]:
    """Return the problems of each file; an unreadable file is a problem too."""
    return {path: _find_problems(path) for path in find_agent_files(paths)}


def find_agent_files(paths: Sequence[Path]) -> list[Path]:
    """Return the named files, and the Markdown files in the named folders except READMEs."""
    for path in paths:
        reject_path_outside(find_project_root(), path)
        if not os.path.lexists(path):
            raise ConfigError(
                f"there is no {path}", "pass a Markdown file or a folder of Markdown files"
            )

    found = {path: [*_find_markdown_files(path)] if path.is_dir() else [path] for path in paths}
    for path, files in found.items():
        if not files:
            raise ConfigError(
                f"no Markdown file in {path}", "pass a Markdown file or a folder of Markdown files"
            )

    return list(dict.fromkeys(file for files in found.values() for file in sorted(files)))


def _find_markdown_files(path: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(path, onerror=_raise_unreadable):
        if links := [name for name in subfolders if (Path(folder) / name).is_symlink()]:
            raise unusable_file_error(Path(folder) / links[0], "is a symbolic link to a folder")

        yield from (
            Path(folder) / name
            for name in names
            if name.endswith(".md") and name.lower() != "readme.md"
        )


def _raise_unreadable(error: OSError) -> None:
    raise unreadable_file_error(Path(error.filename), error)


def _read_stored(path: Path) -> TextFile:
    return read_text_file(path, MAX_FILE_BYTES)


def _plan_install(path: Path, file: ShippedAgentFile, force: bool) -> AgentFileChange:
    if not os.path.lexists(path):
        return AgentFileChange(path, "written", file.text)

    stored = _read_stored(path)
    if stored.text == file.text:
        return AgentFileChange(path, "unchanged")
    if force:
        return AgentFileChange(path, "replaced", file.text, stored.mode)

    return AgentFileChange(path, "kept (differs)")


def _plan_sync(path: Path) -> AgentFileChange:
    stored = _read_stored(path)
    examined = _examine_file(stored.text, path)
    if not examined.findings:
        return AgentFileChange(path, "unchanged")
    return AgentFileChange(
        path, f"synced ({'; '.join(examined.findings)})", examined.corrected_text, stored.mode
    )


def _find_problems(path: Path) -> list[str]:
    try:
        return _examine_file(_read_stored(path).text, path).findings
    except ConfigError as error:
        return [error.message.removeprefix(f"{path}").lstrip(": ")]


def _examine_file(text: str, path: Path) -> AgentFileCheck:
    try:
        return check_agent_file(text, path.stem)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", error.hint) from error


def _write_changes(changes: list[AgentFileChange]) -> list[AgentFileChange]:
    for change in changes:
        if change.text:
            _write_change(change)
    return changes


def _write_change(change: AgentFileChange) -> None:
    try:
        folder = os.open(change.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_file_at(folder, change.path.name, change.text.encode(), change.mode)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigError(
            f"cannot write {change.path}: {error.strerror}", "check the folder's permissions"
        ) from error
