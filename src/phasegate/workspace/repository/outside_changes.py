"""Detect changes outside of a checkout: in refs, the user's files, and their git configuration.

In a sandbox, an agent cannot change any of these. Without one, this module detects what changed
while an agent ran. Changes by Phasegate's own processes are logged (`ref_log`). The author of any
other change is unknown: it may be the user.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.scope import ChangeKind, FileChange
from phasegate.files.file_times import are_file_times_reliable
from phasegate.files.safe_open import folder_descriptor
from phasegate.workspace.repository.disk_files import CheckoutLimits, inspect_path
from phasegate.workspace.repository.ref_log import (
    RefMove,
    is_explained_by_moves,
    last_move_number,
    moves_since,
)
from phasegate.workspace.repository.refs import BRANCH_COPY_PREFIX, BRANCH_PREFIX
from phasegate.workspace.repository.repository import Repository, read_refs
from phasegate.workspace.repository.repository_locks import repository_lock

_WATCHED_GIT_PATHS = ("config", "config.worktree", "HEAD", "hooks", "info", "objects/info")
# The git directories that Phasegate's own git uses
_OWN_GIT_DIRS = ("phasegate/git", "phasegate/git-as-asked")


class OutsideState(NamedTuple):
    """The state of everything outside the checkout: the refs, and a marker per file.

    `last_move` is the number of the latest logged move of a ref.
    """

    refs: Mapping[str, str]
    file_marks: Mapping[str, str]
    last_move: int


def capture_outside_state(
    repository: Repository,
    unwatched: Collection[str] = (".worktrees", ".phasegate", ".isdlc"),
    checkouts: Mapping[str, Path] | None = None,
) -> OutsideState:
    """Capture the state outside the checkout.

    Cheap markers are used; contents are read only if file times are not reliable. `unwatched` are
    names in the repository's root that are skipped. `checkouts` are the checkouts of other agents,
    by the name under which each is reported.
    """
    for raw in (True, False):
        # These directories are created on first use, which must not happen between two captures
        repository.place(raw=raw)

    # Git may miss a ref that is replaced while it lists them
    with repository_lock(repository):
        moves = last_move_number(repository)
        refs = read_refs(repository)

    with_content = not are_file_times_reliable(repository.root)
    found: dict[str, str] = {}
    for name in (*_WATCHED_GIT_PATHS, *_OWN_GIT_DIRS):
        found.update(_file_marks(repository.common_dir / name, f".git/{name}", with_content))

    for entry in repository.root.iterdir():
        if entry.name != ".git" and entry.name not in unwatched:
            found.update(_file_marks(entry, entry.name, with_content))

    for name, folder in (checkouts or {}).items():
        found.update(_file_marks(folder, name, with_content))

    return OutsideState(refs, found, moves)


def find_outside_changes(
    repository: Repository,
    before: OutsideState,
    after: OutsideState,
    own_refs: Collection[str] = (),
) -> list[FileChange]:
    """Return the differences between two states, except Phasegate's own and `own_refs`."""
    noted: dict[str, list[RefMove]] = defaultdict(list)
    for move in moves_since(repository, before.last_move):
        noted[move.name].append(move)

    refs = [
        name
        for name in _changed_names(before.refs, after.refs)
        if name not in own_refs
        and not _is_moved_by_us(name, before.refs.get(name), after.refs.get(name), noted)
    ]

    files = [
        name
        for name in _changed_names(before.file_marks, after.file_marks)
        if not _is_own_write(repository, name, noted[str(repository.root / name)])
    ]

    return [FileChange(ChangeKind.OUTSIDE, name) for name in sorted((*refs, *files))]


def _is_moved_by_us(
    name: str, old: str | None, new: str | None, noted: Mapping[str, Sequence[RefMove]]
) -> bool:
    # The copy moves with its branch, whatever its old value
    if name.startswith(BRANCH_COPY_PREFIX):
        return any(
            move.new == new
            for move in noted.get(BRANCH_PREFIX + name.removeprefix(BRANCH_COPY_PREFIX), ())
        )
    return is_explained_by_moves(old, new, noted.get(name, ()))


def _changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]


def _is_own_write(repository: Repository, name: str, moves: Sequence[RefMove]) -> bool:
    """Return True if a user's file has the content that Phasegate wrote when it moved a branch."""
    if not moves:
        return False

    path = repository.root / name
    try:
        with folder_descriptor(path.parent) as folder:
            about = path.lstat()
            found = inspect_path(
                folder,
                path.name,
                about,
                repository.hash_name,
                CheckoutLimits(file_bytes=about.st_size),
            )
    except FileNotFoundError:
        return any(move.new is None for move in moves)
    except OSError:
        return False

    return any(move.new == found.object_id for move in moves)


def _file_marks(path: Path, name: str, with_content: bool) -> Iterator[tuple[str, str]]:
    """Yield a marker for each file at or below a path.

    Folders have no marker, since they change with every file in them. An unreadable path
    has a marker too, for example one that is nested too deeply to open.
    """
    pending = [(path, name)]
    own = _own_output_files()

    while pending:
        path, name = pending.pop()
        try:
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode):
                pending += [(entry, f"{name}/{entry.name}") for entry in path.iterdir()]
                continue
            if any(os.path.samestat(about, one) for one in own):
                continue

            if with_content and stat.S_ISREG(about.st_mode):
                content = _file_digest(path)
            else:
                content = ""
        except FileNotFoundError:
            continue
        except OSError:
            yield name, "cannot be inspected"
            continue

        times = f"{about.st_mtime_ns} {about.st_ctime_ns}"
        yield name, f"{about.st_mode} {about.st_ino} {about.st_size} {times} {content}"


def _own_output_files() -> list[os.stat_result]:
    """Return the files that receive Phasegate's own output, as in `phasegate run 2>log`."""
    found = []
    for descriptor in (1, 2):
        # The descriptor may be closed
        with suppress(OSError):
            found.append(os.fstat(descriptor))

    return found


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
