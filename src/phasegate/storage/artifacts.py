"""Artifacts of a feature: files below `kitty-specs/{slug}`, and nowhere else."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.artifact_path import path_problem, require_slug, slug_problem
from phasegate.core.text.visible import visible
from phasegate.errors import ConfigError, PhasegateError
from phasegate.files import open_plain, read_open
from phasegate.files.durable_write import replace_at
from phasegate.files.safe_open import closing_descriptor, make_beneath, open_beneath, opened_folder

SPECS_FOLDER = "kitty-specs"
LARGEST_BYTES = 64_000_000
_LEADS_OUT = {errno.ELOOP, errno.EXDEV, errno.ENOTDIR, errno.EINVAL}


class Artifact(NamedTuple):
    """One file of a feature, relative to the feature's folder."""

    path: str
    bytes: int


def write_artifact(root: Path, feature: str, path: str, content: bytes, *, below: str = SPECS_FOLDER) -> None:
    """Write a file below the feature's folder, whole or not at all."""
    expect_artifact(path, content)
    parts = _parts(below, feature, path)
    with _explained(path), opened_folder(root) as top, closing_descriptor(make_beneath(top, parts[:-1])) as folder:
        _refuse_link(folder, parts[-1])
        replace_at(folder, parts[-1], content, 0o644)


def read_artifact(root: Path, feature: str, path: str, *, below: str = SPECS_FOLDER) -> bytes:
    """The bytes of a file below the feature's folder."""
    parts = _parts(below, feature, path)
    with (
        _explained(path),
        opened_folder(root) as top,
        closing_descriptor(open_beneath(top, parts[:-1])) as folder,
        closing_descriptor(open_plain(parts[-1], folder)) as file,
    ):
        content = read_open(file, LARGEST_BYTES)
    if content is None:
        raise ConfigError(f"artifact {visible(path)} is larger than {LARGEST_BYTES} bytes")
    return content


def list_artifacts(root: Path, feature: str, *, below: str = SPECS_FOLDER) -> list[Artifact]:
    """All plain files of a feature, by path. Links are not followed and not listed."""
    parts = (*_folders(below), require_slug(feature))
    try:
        with opened_folder(root) as top, closing_descriptor(open_beneath(top, parts)) as folder:
            return sorted(_files(folder, ""))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _explain(feature, error) from error


def list_features(root: Path, *, below: str = SPECS_FOLDER) -> list[str]:
    """The features that have a folder."""
    try:
        with opened_folder(root) as top, closing_descriptor(open_beneath(top, _folders(below))) as folder:
            return sorted(one.name for one in os.scandir(folder) if _is_feature(one))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _explain(below, error) from error


def _is_feature(one: os.DirEntry[str]) -> bool:
    return one.is_dir(follow_symlinks=False) and not slug_problem(one.name)


def _folders(below: str) -> tuple[str, ...]:
    return tuple(below.rstrip("/").split("/"))


def expect_artifact(path: str, content: bytes = b"") -> None:
    """Refuse a path that leads elsewhere, and content that is too large."""
    if problem := path_problem(path):
        raise ConfigError(f"artifact path '{visible(path[:120])}' {problem}", "for instance WP01/test-report.txt")
    if len(content) > LARGEST_BYTES:
        raise ConfigError(f"the content has {len(content)} bytes; at most {LARGEST_BYTES} are kept as an artifact")


def _parts(below: str, feature: str, path: str) -> tuple[str, ...]:
    expect_artifact(path)
    return (*_folders(below), require_slug(feature), *path.split("/"))


def _files(folder: int, prefix: str) -> Iterator[Artifact]:
    for about in os.scandir(folder):
        if about.is_file(follow_symlinks=False):
            yield Artifact(prefix + about.name, about.stat(follow_symlinks=False).st_size)
        elif about.is_dir(follow_symlinks=False):
            with closing_descriptor(open_beneath(folder, (about.name,))) as below:
                yield from _files(below, f"{prefix}{about.name}/")


def _refuse_link(folder: int, name: str) -> None:
    """Say so instead of silently replacing a link. (One that is put there later is replaced, and never followed.)"""
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(about.st_mode):
        raise OSError(errno.EISDIR, "it is a folder, and a file is meant")
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.ELOOP, "not a plain file")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explain(path, error) from error


def _explain(path: str, error: OSError) -> PhasegateError:
    if error.errno in _LEADS_OUT:
        why = "a part of its path is a link, or not a folder, or the file is not a plain file"
        return ConfigError(f"artifact {visible(path)} is refused: {why}", "remove the link; nothing was written")
    return ConfigError(f"artifact {visible(path)}: {error.strerror}", "`phasegate artifact list` shows what there is")
