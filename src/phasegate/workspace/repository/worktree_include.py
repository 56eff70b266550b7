"""Copy ignored files of the user, such as `.env`, into a checkout, as listed in `.worktreeinclude`.

The list has the format of `.gitignore`. It matches only files that git ignores: untracked files
that are not ignored are the user's unfinished work and are never copied.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from phasegate.errors import ConfigError
from phasegate.files import create_new_file, open_regular_file
from phasegate.files.safe_open import (
    closing_descriptor,
    folder_descriptor,
    make_folder_beneath,
    open_beneath,
)
from phasegate.git import GitPaths, git
from phasegate.workspace.repository.repository import Repository, read_blobs, temporary_folder
from phasegate.workspace.repository.tree_diff import list_tree_entries

INCLUDE_FILE_NAME = ".worktreeinclude"
MAX_FILES = 50_000
MAX_TOTAL_BYTES = 2 * 1024**3
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK


def list_included_files(
    repository: Repository,
    commit: str,
    own_folders: Sequence[str],
    is_trusted: Callable[[bytes], bool] = lambda patterns: True,
) -> tuple[str, ...]:
    """Return the ignored files to copy, as listed in the `.worktreeinclude` of the user.

    The list is read from the commit, or from disk if it is not tracked. A list that is not trusted
    is ignored: it could name any secret of the user in this folder.
    """
    text = _read_patterns(repository, commit)
    if not text.strip() or not is_trusted(text):
        return ()

    place = GitPaths(
        repository.git_dir, repository.objects, repository.git_dir / "index", repository.root
    )
    with temporary_folder(repository) as room:
        (room / INCLUDE_FILE_NAME).write_bytes(text)
        matched = _list_untracked(place, f"--exclude-from={room / INCLUDE_FILE_NAME}")

    if matched:
        found = matched & _list_untracked(place, "--exclude-standard")
    else:
        found = matched

    paths = tuple(sorted(path for path in found if path.partition("/")[0] not in own_folders))
    if len(paths) > MAX_FILES:
        raise ConfigError(
            f"{INCLUDE_FILE_NAME} matches more than {MAX_FILES} files",
            "list individual files, and let the setup commands create the rest",
        )

    return paths


def _list_untracked(place: GitPaths, excluded: str) -> set[str]:
    """Return the untracked files that match a rule, without those in nested repositories."""
    listed = git(
        place,
        "ls-files",
        "-z",
        "--others",
        "--ignored",
        excluded,
        settings=("-C", str(place.work_tree)),
    ).stdout
    return {os.fsdecode(path) for path in listed.split(b"\0") if path and not path.endswith(b"/")}


def _read_patterns(repository: Repository, commit: str) -> bytes:
    """Return the content of `.worktreeinclude`.

    A tracked file is read from the commit, because the one on disk may be from a branch that an
    agent wrote.
    """
    for entry in list_tree_entries(repository, commit):
        about, _, path = entry.partition(b"\t")
        if path == os.fsencode(INCLUDE_FILE_NAME):
            blob = about.split()[2].decode()
            return read_blobs(repository.place(), [blob])[blob]

    with (
        suppress(OSError),
        closing_descriptor(open_regular_file(repository.root / INCLUDE_FILE_NAME)) as file,
    ):
        tracked = GitPaths(
            repository.git_dir, repository.objects, repository.git_dir / "index", repository.root
        )
        if not git(
            tracked,
            "ls-files",
            "-z",
            "--",
            INCLUDE_FILE_NAME,
            settings=("-C", str(repository.root)),
        ).stdout:
            return os.read(file, 100_000)

    return b""


def copy_included_files(root: Path, paths: Sequence[str], checkout: Path) -> tuple[str, ...]:
    """Copy these regular files into a checkout, and return the copied paths.

    Existing files are not overwritten. Links are not followed on either side.
    """
    copied = []
    left = MAX_TOTAL_BYTES
    with folder_descriptor(root) as source, folder_descriptor(checkout) as target:
        for path in paths:
            with (
                suppress(OSError),
                closing_descriptor(open_beneath(source, path.split("/"), _READ_FLAGS)) as file,
            ):
                left -= os.fstat(file).st_size
                if left < 0:
                    raise ConfigError(
                        f"the files that {INCLUDE_FILE_NAME} matches have more than"
                        f" {MAX_TOTAL_BYTES >> 20} MiB",
                        "narrow its patterns, for example to single files",
                    )

                if stat.S_ISREG(os.fstat(file).st_mode):
                    _copy_file(file, target, path)
                    copied.append(path)

    return tuple(copied)


def _copy_file(file: int, target: int, path: str) -> None:
    *folders, name = path.split("/")
    with (
        closing_descriptor(make_folder_beneath(target, folders)) as folder,
        os.fdopen(os.dup(file), "rb") as source,
        os.fdopen(create_new_file(name, os.fstat(file).st_mode & 0o777, folder), "wb") as copy,
    ):
        shutil.copyfileobj(source, copy)
