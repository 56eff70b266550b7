"""Agent files in a person's folders: copied, checked and mended, without following a link or leaving half a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError
from phasegate.files.durable_write import replace_at
from phasegate.files.text_file import PlainFile, read_plain_file, refused, unreadable
from phasegate.prompts.agent_files import Examined, ShippedFile, examine
from phasegate.prompts.agent_files import shipped_files as shipped_files

LARGEST_FILE_BYTES = 1_000_000
_NEW_FILE_MODE = 0o644


class AgentFileChange(NamedTuple):
    """A file, what became of it, and the text to write, if any."""

    path: Path
    outcome: str
    text: str = ""
    mode: int = _NEW_FILE_MODE


def install_agent_files(folder: Path, force: bool) -> list[AgentFileChange]:
    """Copy the shipped files into a folder. One that differs from ours is kept, unless `force` is given."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {folder}: {error.strerror}", "name a folder you may write"
        ) from error
    return _written([_installed(folder / f"{file.name}.md", file, force) for file in shipped_files()])


def sync_agent_files(paths: Sequence[Path]) -> list[AgentFileChange]:
    """Put the section that is due into each file. All are read before the first is written."""
    return _written([_synced(path) for path in agent_files_below(paths)])


def check_agent_files(paths: Sequence[Path]) -> dict[Path, list[str]]:
    """What is wrong with each file; one that is there and cannot be judged is wrong too."""
    return {path: _findings(path) for path in agent_files_below(paths)}


def agent_files_below(paths: Sequence[Path]) -> list[Path]:
    """The files that are named, and the Markdown files of the folders and their subfolders; a README there is none."""
    for path in paths:
        if not os.path.lexists(path):
            raise ConfigError(f"there is no {path}", "name a Markdown file, or a folder of them")
    found = {path: [*_markdown_below(path)] if path.is_dir() else [path] for path in paths}
    for path, files in found.items():
        if not files:
            raise ConfigError(f"there is no Markdown file in {path}", "name a Markdown file, or a folder of them")
    return list(dict.fromkeys(file for files in found.values() for file in sorted(files)))


def _markdown_below(path: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(path, onerror=_stop):
        if links := [name for name in subfolders if (Path(folder) / name).is_symlink()]:
            raise refused(Path(folder) / links[0], "is a symbolic link to a folder")
        yield from (Path(folder) / name for name in names if name.endswith(".md") and name.lower() != "readme.md")


def _stop(error: OSError) -> None:
    raise unreadable(Path(error.filename), error)


def _stored(path: Path) -> PlainFile:
    return read_plain_file(path, LARGEST_FILE_BYTES)


def _installed(path: Path, file: ShippedFile, force: bool) -> AgentFileChange:
    if not os.path.lexists(path):
        return AgentFileChange(path, "written", file.text)
    stored = _stored(path)
    if stored.text == file.text:
        return AgentFileChange(path, "unchanged")
    return (
        AgentFileChange(path, "replaced", file.text, stored.mode) if force else AgentFileChange(path, "kept (differs)")
    )


def _synced(path: Path) -> AgentFileChange:
    stored = _stored(path)
    examined = _examined(stored.text, path)
    if not examined.findings:
        return AgentFileChange(path, "unchanged")
    return AgentFileChange(path, f"synced ({'; '.join(examined.findings)})", examined.text, stored.mode)


def _findings(path: Path) -> list[str]:
    try:
        return _examined(_stored(path).text, path).findings
    except ConfigError as error:
        return [error.message.removeprefix(f"{path}").lstrip(": ")]


def _examined(text: str, path: Path) -> Examined:
    try:
        return examine(text, path.stem)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", error.hint) from error


def _written(changes: list[AgentFileChange]) -> list[AgentFileChange]:
    for change in changes:
        if change.text:
            _replace(change)
    return changes


def _replace(change: AgentFileChange) -> None:
    try:
        folder = os.open(change.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_at(folder, change.path.name, change.text.encode(), change.mode)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigError(f"cannot write {change.path}: {error.strerror}", "check the folder's permissions") from error
