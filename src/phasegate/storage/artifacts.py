"""Read and write the artifacts of a feature: files below `kitty-specs/{slug}`, and nowhere else."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.artifact_path import (
    find_artifact_path_problem,
    find_slug_problem,
    require_slug,
)
from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import ConfigError, PhasegateError
from phasegate.files import open_regular_file, read_descriptor
from phasegate.files.durable_write import replace_file_at
from phasegate.files.safe_open import (
    closing_descriptor,
    folder_descriptor,
    make_folder_beneath,
    open_beneath,
)

SPECS_FOLDER = "kitty-specs"
MAX_ARTIFACT_BYTES = 64_000_000
_UNSAFE_PATH_ERRNOS = {errno.ELOOP, errno.EXDEV, errno.ENOTDIR, errno.EINVAL}


class Artifact(NamedTuple):
    """One file of a feature; its path is relative to the feature's folder."""

    path: str
    bytes: int


def write_artifact(
    root: Path, feature: str, path: str, content: bytes, *, specs_folder: str = SPECS_FOLDER
) -> None:
    """Write a file below the feature's folder atomically."""
    validate_artifact(path, content)
    parts = _artifact_path_parts(specs_folder, feature, path)
    with (
        _translate_errors(path),
        folder_descriptor(root) as top,
        closing_descriptor(make_folder_beneath(top, parts[:-1])) as folder,
    ):
        _refuse_link(folder, parts[-1])
        replace_file_at(folder, parts[-1], content, 0o644)


def read_artifact(
    root: Path, feature: str, path: str, *, specs_folder: str = SPECS_FOLDER
) -> bytes:
    """Return the bytes of a file below the feature's folder."""
    parts = _artifact_path_parts(specs_folder, feature, path)
    with (
        _translate_errors(path),
        folder_descriptor(root) as top,
        closing_descriptor(open_beneath(top, parts[:-1])) as folder,
        closing_descriptor(open_regular_file(parts[-1], folder)) as file,
    ):
        content = read_descriptor(file, MAX_ARTIFACT_BYTES)

    if content is None:
        raise ConfigError(
            f"artifact {escape_unprintable(path)} is larger than {MAX_ARTIFACT_BYTES} bytes"
        )

    return content


def list_artifacts(root: Path, feature: str, *, specs_folder: str = SPECS_FOLDER) -> list[Artifact]:
    """Return all regular files of a feature, sorted by path.

    Links are neither followed nor listed.
    """
    parts = (*_split_folders(specs_folder), require_slug(feature))

    try:
        with folder_descriptor(root) as top, closing_descriptor(open_beneath(top, parts)) as folder:
            return sorted(_walk_files(folder, ""))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _artifact_error(feature, error) from error


def list_features(root: Path, *, specs_folder: str = SPECS_FOLDER) -> list[str]:
    """Return the features that have a folder."""
    try:
        with (
            folder_descriptor(root) as top,
            closing_descriptor(open_beneath(top, _split_folders(specs_folder))) as folder,
        ):
            return sorted(one.name for one in os.scandir(folder) if _is_feature(one))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _artifact_error(specs_folder, error) from error


def _is_feature(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and not find_slug_problem(entry.name)


def _split_folders(specs_folder: str) -> tuple[str, ...]:
    return tuple(specs_folder.rstrip("/").split("/"))


def validate_artifact(path: str, content: bytes = b"") -> None:
    """Raise an error for a path that leads outside the folder, or for content that is too large."""
    if problem := find_artifact_path_problem(path):
        raise ConfigError(
            f"artifact path '{escape_unprintable(path[:120])}' {problem}",
            "use a path such as WP01/test-report.txt",
        )

    if len(content) > MAX_ARTIFACT_BYTES:
        raise ConfigError(
            f"the content has {len(content)} bytes; at most {MAX_ARTIFACT_BYTES} are kept as an"
            " artifact"
        )


def _artifact_path_parts(specs_folder: str, feature: str, path: str) -> tuple[str, ...]:
    validate_artifact(path)
    return (*_split_folders(specs_folder), require_slug(feature), *path.split("/"))


def _walk_files(folder: int, prefix: str) -> Iterator[Artifact]:
    for about in os.scandir(folder):
        if about.is_file(follow_symlinks=False):
            yield Artifact(prefix + about.name, about.stat(follow_symlinks=False).st_size)
        elif about.is_dir(follow_symlinks=False):
            with closing_descriptor(open_beneath(folder, (about.name,))) as below:
                yield from _walk_files(below, f"{prefix}{about.name}/")


def _refuse_link(folder: int, name: str) -> None:
    """Raise an error if the existing file is a link.

    A link that is created after this check is replaced, never followed.
    """
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return

    if stat.S_ISDIR(about.st_mode):
        raise OSError(errno.EISDIR, "it is a folder, not a file")
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.ELOOP, "not a regular file")


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _artifact_error(path, error) from error


def _artifact_error(path: str, error: OSError) -> PhasegateError:
    """Create the error for an artifact that cannot be read or written."""
    if error.errno in _UNSAFE_PATH_ERRNOS:
        why = "its path contains a link or a file, or it is not a regular file"
        return ConfigError(
            f"artifact {escape_unprintable(path)} is refused: {why}",
            "remove the link, or name another path",
        )

    return ConfigError(
        f"artifact {escape_unprintable(path)}: {error.strerror}",
        "`phasegate artifact list` lists the artifacts",
    )
