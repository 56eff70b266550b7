"""Agent files in a person's folders: found, read and replaced without following a link or leaving half a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError

LARGEST_FILE_BYTES = 1_000_000
_NEW_FILE_MODE = 0o666  # the person's umask takes off what it wants


class Stored(NamedTuple):
    """The text of a file and its permissions."""

    text: str
    mode: int


def agent_files_below(path: Path) -> list[Path]:
    """The file itself, or the Markdown files of a folder and its subfolders; a README there is none."""
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for folder, subfolders, names in os.walk(path, onerror=_stop):
        links = [name for name in subfolders if (Path(folder) / name).is_symlink()]
        if links:
            raise _refused(Path(folder) / links[0], "is a symbolic link to a folder")
        found += [Path(folder) / name for name in names if name.endswith(".md") and name.lower() != "readme.md"]
    return sorted(found)


def read_agent_text(path: Path) -> Stored:
    """The text of a regular file of UTF-8; everything else is refused by name."""
    with _folder_of(path) as folder:
        return _read(path, folder)


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
        raise _unreadable(path, error) from error
    try:
        yield folder
    finally:
        os.close(folder)


def _read(path: Path, folder: int) -> Stored:
    try:
        about = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(about.st_mode):
            raise _refused(path, "is a symbolic link")
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise _unreadable(path, error) from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise _refused(path, "is not a regular file")
        raw = file.read(LARGEST_FILE_BYTES + 1)
    if len(raw) > LARGEST_FILE_BYTES:
        raise _refused(path, f"is larger than {LARGEST_FILE_BYTES} bytes")
    try:
        return Stored(raw.decode(), stat.S_IMODE(about.st_mode))
    except UnicodeDecodeError as error:
        raise _refused(path, f"is not UTF-8 (byte {error.start})") from error


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
    raise _unreadable(Path(error.filename), error)


def _unreadable(path: Path, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(f"cannot read {path}: {reason}", "name a Markdown file, or a folder of them")


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path} {why}", "name a regular Markdown file in UTF-8; nothing was changed")
