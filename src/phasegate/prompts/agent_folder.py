"""Agent files in a person's folders: found, read and replaced without following a link or leaving half a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phasegate.errors import ConfigError
from phasegate.plain_file import PlainFile, read_plain_file, refused, unreadable

LARGEST_FILE_BYTES = 1_000_000
_NEW_FILE_MODE = 0o666  # the person's umask takes off what it wants


def agent_files_below(path: Path) -> list[Path]:
    """The file itself, or the Markdown files of a folder and its subfolders; a README there is none."""
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for folder, subfolders, names in os.walk(path, onerror=_stop):
        links = [name for name in subfolders if (Path(folder) / name).is_symlink()]
        if links:
            raise refused(Path(folder) / links[0], "is a symbolic link to a folder")
        found += [Path(folder) / name for name in names if name.endswith(".md") and name.lower() != "readme.md"]
    return sorted(found)


def read_agent_text(path: Path) -> PlainFile:
    """The text of a regular file of UTF-8; everything else is refused by name."""
    with _folder_of(path) as folder:
        return read_plain_file(path, LARGEST_FILE_BYTES, folder=folder)


def replace_agent_text(path: Path, text: str, mode: int | None = None) -> None:
    """Put the whole new text in place of the file, or leave the old one; the mode is kept when it is given."""
    draft = f".{path.name[:200]}.{os.getpid()}.new"
    try:
        with _folder_of(path) as folder:
            try:
                _write(draft, folder, text.encode(), mode)
                os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _discard(draft, folder)
                raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "check the folder's permissions") from error


@contextmanager
def _folder_of(path: Path) -> Iterator[int]:
    """The folder, held open: it is the same one for reading and for writing, whatever its name leads to later."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    try:
        yield folder
    finally:
        os.close(folder)


def _write(name: str, folder: int, raw: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, _NEW_FILE_MODE, dir_fd=folder), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def _discard(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _stop(error: OSError) -> None:
    raise unreadable(Path(error.filename), error)
