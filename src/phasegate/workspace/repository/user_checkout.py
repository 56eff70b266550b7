"""Update a user's checkout when its branch moves, if it is clean; never overwrite changes.

Uncommitted changes are not touched: one such file stops the move, and the message names it. A file
that already has its new content is not an obstacle, so that an interrupted move can be completed.
Neither is a file that a power failure left empty while it was written.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.repo_path import list_path_and_parents
from phasegate.files.durable_write import sync_file_system, sync_folders
from phasegate.files.safe_open import folder_beneath, folder_descriptor
from phasegate.git import GitFailed, git, query_git_as_user
from phasegate.workspace.repository.disk_files import CheckoutLimits, inspect_path
from phasegate.workspace.repository.objects import PathVersion
from phasegate.workspace.repository.ref_log import RefMove, log_moves, moves_since
from phasegate.workspace.repository.repository import (
    Repository,
    resolve_commit,
    resolve_git_dir,
    temporary_folder,
)
from phasegate.workspace.repository.repository_locks import RepositoryLock
from phasegate.workspace.repository.tree_diff import Difference, diff_trees, parse_raw_diff

_GIT_OPERATIONS = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}
# Settings for writing the user's files; none of them can name a program.
_FILE_SETTINGS = (
    "autocrlf",
    "eol",
    "safecrlf",
    "filemode",
    "symlinks",
    "ignorecase",
    "precomposeunicode",
)
_MAX_SHOWN_PATHS = 20
# Part of the reason of a blocked merge, which is recorded
NOT_COMMITTED = "files that are not committed"


class UserCheckout(NamedTuple):
    folder: Path
    git_dir: Path


class Obstacle(NamedTuple):
    """Something that the user must resolve before the branch can move. Nothing was changed."""

    folder: Path
    reason: str
    paths: tuple[str, ...] = ()


class _CheckoutSettings(NamedTuple):
    options: tuple[str, ...]
    filters: frozenset[str]
    sparse: bool


def find_checkout_on_ref(repository: Repository, ref: str) -> UserCheckout | Obstacle | None:
    """Return the user's checkout that has a branch checked out, or is rebasing it, or None if none
    has.
    """
    said = git(repository.refs_place, "worktree", "list", "--porcelain", "-z").stdout

    for record in os.fsdecode(said).split("\0\0"):
        lines = record.strip("\0").split("\0")
        folder = Path(lines[0].removeprefix("worktree "))
        git_dir = resolve_git_dir(folder)
        if git_dir is None or "bare" in lines:
            continue
        if f"branch {ref}" in lines:
            return UserCheckout(folder, git_dir)
        if _is_rebasing(git_dir, ref):
            return Obstacle(folder, f"a rebase of {ref.removeprefix('refs/heads/')} is in progress")

    return None


def _is_rebasing(git_dir: Path, ref: str) -> bool:
    heads = (git_dir / kind / "head-name" for kind in ("rebase-merge", "rebase-apply"))
    return any(head.is_file() and head.read_text().strip() == ref for head in heads)


def list_uncommitted_paths(repository: Repository, ref: str) -> tuple[str, ...]:
    """Return the tracked files that the user has changed in the checkout of a branch.

    The index of the user is copied, not written.
    """
    checkout = find_checkout_on_ref(repository, ref)
    commit = resolve_commit(repository, ref)
    if not isinstance(checkout, UserCheckout) or commit is None:
        return ()
    if not (checkout.git_dir / "index").is_file():
        return ()

    options = _read_settings(checkout).options
    with temporary_folder(repository) as room:
        index = room / "index"
        shutil.copy2(checkout.git_dir / "index", index)
        place = repository.place(index, checkout.folder, raw=False)
        refresh = ("update-index", "-q", "--refresh")
        git(place, *refresh, settings=options, accepted_exit_codes=(0, 1))
        arguments = ("diff-index", "--name-only", "-z", "--no-renames", "--ignore-submodules=dirty")
        output = git(place, *arguments, commit, settings=options).stdout

    return tuple(path for path in os.fsdecode(output).split("\0") if path)


@contextmanager
def locked_index(
    repository: Repository, lock: RepositoryLock, checkout: UserCheckout, old: str, new: str
) -> Iterator[CheckoutMove | Obstacle]:
    """Lock the index of a checkout for a move; yield the move, or the obstacle that prevents it."""
    under_way = next(
        (what for name, what in _GIT_OPERATIONS.items() if (checkout.git_dir / name).exists()), None
    )
    index_lock = checkout.git_dir / "index.lock"
    lock.announce_lock_files([index_lock])

    if under_way is not None:
        yield Obstacle(checkout.folder, f"{under_way} is in progress")
    elif not _try_create_file(index_lock):
        yield Obstacle(
            checkout.folder, f"another git process is running, or was killed: {index_lock}"
        )
    else:
        try:
            with temporary_folder(repository) as room:
                yield CheckoutMove(repository, lock, checkout, room / "index", old, new)
        finally:
            index_lock.unlink(missing_ok=True)


def _try_create_file(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        return False
    return True


class CheckoutMove:
    """A move of a checkout, prepared on a private copy of its index.

    The user's index is replaced after all files have been written.
    """

    def __init__(
        self,
        repository: Repository,
        lock: RepositoryLock,
        checkout: UserCheckout,
        index: Path,
        old: str,
        new: str,
    ) -> None:
        self._repository = repository
        self._lock = lock
        self._checkout = checkout
        self._index = index
        self._old = old
        self._new = new
        self._changes: list[Difference] = []
        self._settings = _read_settings(checkout)
        self._place = repository.place(index, checkout.folder, raw=False)

    def apply(self) -> Obstacle | None:
        """Write the files of the new commit; return the obstacle if something is in the way."""
        try:
            return self._try_apply()
        except GitFailed as error:
            # For example an index format that only the user's git can read
            return Obstacle(self._checkout.folder, error.message)

    def _try_apply(self) -> Obstacle | None:
        """Update the user's checkout, or return the obstacle and leave it as it is."""
        own_index = self._checkout.git_dir / "index"
        if self._settings.sparse or not own_index.is_file():
            return Obstacle(
                self._checkout.folder,
                "Phasegate does not update a sparse checkout or one without an index",
            )

        # Keep the modification time, by which git finds the files that it must compare again
        shutil.copy2(own_index, self._index)
        self._changes = changes = diff_trees(self._repository.place(), self._old, self._new)
        obstacle = self._find_uncommitted(changes) or self._find_filtered(changes)
        if obstacle is not None:
            return obstacle

        self._log_moves(
            [RefMove(path, _object_id(old), _object_id(new)) for path, old, new in changes]
        )
        self._read_tree(self._old, self._new)
        self._publish()

        return None

    def _log_moves(self, moves: Sequence[RefMove]) -> None:
        """Log that Phasegate changes these files.

        Without a sandbox, an agent that runs at the same time would be blamed for the changes.
        """
        folder = self._checkout.folder
        noted = [move._replace(name=str(folder / move.name)) for move in moves]
        log_moves(self._repository, self._lock, noted, durable=True)

    def revert(self) -> None:
        """Undo `apply`, after the branch could not be moved."""
        self._log_moves(
            [RefMove(path, _object_id(new), _object_id(old)) for path, old, new in self._changes]
        )
        self._read_tree(self._new, self._old)
        self._publish()

    def _read_tree(self, source: str, target: str) -> None:
        options = self._settings.options
        out = self._lock.descriptor
        git(self._place, "read-tree", "-m", "-u", source, target, settings=options, stdout_to=out)

    def _publish(self) -> None:
        """Publish the new index atomically by renaming its lock file, as git does."""
        index_lock = self._checkout.git_dir / "index.lock"
        index_lock.write_bytes(self._index.read_bytes())
        # Git syncs no file of a checkout
        for place in (self._checkout.folder, index_lock.parent):
            sync_file_system(place)

        index_lock.replace(self._checkout.git_dir / "index")
        sync_folders(index_lock.parent, index_lock.parent)
        _try_create_file(index_lock)

    def _find_uncommitted(self, changes: Sequence[Difference]) -> Obstacle | None:
        """Return uncommitted changes as an obstacle, except those that the move makes anyway."""
        self._refresh_index()
        options = self._settings.options
        arguments = (
            "diff-index",
            "--raw",
            "-z",
            "--no-renames",
            "--ignore-submodules=dirty",
            self._old,
        )

        touched = {
            change.path
            for change in parse_raw_diff(git(self._place, *arguments, settings=options).stdout)
        }
        with folder_descriptor(self._checkout.folder) as root:
            arrived = [change for change in changes if self._is_already_applied(root, change)]
            remains = self._find_torn_files(root, changes)
            settled = {change.path for change in arrived} | remains.keys()
            overwritten = _find_overwritten(root, changes, settled)
            paths = sorted((touched - settled) | overwritten)

            if paths:
                return Obstacle(
                    self._checkout.folder,
                    NOT_COMMITTED,
                    tuple(paths[:_MAX_SHOWN_PATHS]),
                )

            for path in (path for path, is_there in remains.items() if is_there):
                folder, _, name = path.rpartition("/")
                with folder_beneath(root, folder) as inside:
                    # Git would not overwrite the file
                    os.unlink(name, dir_fd=inside)

        self._stage_applied(arrived)
        return None

    def _refresh_index(self) -> None:
        options = self._settings.options
        refresh = ("update-index", "-q", "--refresh")
        git(self._place, *refresh, settings=options, accepted_exit_codes=(0, 1))

    def _find_torn_files(self, root: int, changes: Sequence[Difference]) -> dict[str, bool]:
        """Return the files that a power failure left empty or missing during a write."""
        last = {move.name: move for move in moves_since(self._repository, 0)}
        found = {}

        for path, old, new in changes:
            name = str(self._checkout.folder / path)
            if new is not None and last.get(name) == RefMove(
                name, _object_id(old), _object_id(new)
            ):
                about = _try_lstat(root, path)
                if about is None or (stat.S_ISREG(about.st_mode) and about.st_size == 0):
                    found[path] = about is not None

        return found

    def _is_already_applied(self, root: int, change: Difference) -> bool:
        """Return True if a path already has its content after the move."""
        about = _try_lstat(root, change.path)
        if change.new is None or about is None:
            return change.new is None and about is None
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)):
            return False

        found = inspect_path(
            root,
            change.path,
            about,
            self._repository.hash_name,
            CheckoutLimits(file_bytes=about.st_size),
        )
        return (found.mode, found.object_id) == change.new

    def _stage_applied(self, arrived: Sequence[Difference]) -> None:
        """Add files that already have their new content to the private index.

        Otherwise git would treat them as edits of the user.
        """
        if not arrived:
            return

        gone = PathVersion("0", "0" * len(self._old))
        lines = (
            f"{version.mode} {version.object_id}\t{path}"
            for path, _, new in arrived
            for version in (new or gone,)
        )
        data = b"".join(os.fsencode(line) + b"\0" for line in lines)
        git(self._place, "update-index", "-z", "--index-info", stdin=data)
        self._refresh_index()

    def _find_filtered(self, changes: Sequence[Difference]) -> Obstacle | None:
        """Return files that need a filter program of the user, such as Git LFS, as an obstacle.

        Phasegate does not run filter programs.
        """
        written = [change.path for change in changes if change.new is not None]
        if not self._settings.filters or not written:
            return None

        with temporary_folder(self._repository) as room:
            place = self._repository.place(room / "index", raw=False)
            git(place, "read-tree", self._new)
            asked = b"".join(os.fsencode(path) + b"\0" for path in written)
            said = git(
                place, "check-attr", "-z", "--cached", "--stdin", "filter", stdin=asked
            ).stdout

        fields = os.fsdecode(said).split("\0")
        paths = [
            path
            for path, name in zip(fields[::3], fields[2::3], strict=False)
            if name in self._settings.filters
        ]
        if not paths:
            return None

        return Obstacle(
            self._checkout.folder, "files that only a filter program can write", tuple(paths)
        )


def _object_id(version: PathVersion | None) -> str | None:
    if version is None:
        return None
    return version.object_id


def _find_overwritten(root: int, changes: Sequence[Difference], applied: set[str]) -> set[str]:
    """Return untracked files that the move would overwrite, including ignored ones."""
    tracked = {change.path for change in changes if change.old is not None}
    found: set[str] = set()

    for change in changes:
        if change.old is None and change.path not in applied:
            found.update(
                path for path in _find_occupied_paths(root, change.path) if path not in tracked
            )

    return found


def _find_occupied_paths(root: int, path: str) -> Iterator[str]:
    """Yield the existing files that prevent writing a path.

    That is the file at the path, the files below it if it is a folder, or a file in place of a
    parent folder.
    """
    for folder in reversed(list_path_and_parents(path)[1:]):
        above = _try_lstat(root, folder)
        if above is not None and not stat.S_ISDIR(above.st_mode):
            yield folder
            return

    about = _try_lstat(root, path)
    if about is not None and stat.S_ISDIR(about.st_mode):
        for name, _, files, _ in os.fwalk(path, dir_fd=root):
            yield from (f"{name}/{file}" for file in files)
    elif about is not None:
        yield path


def _try_lstat(root: int, path: str) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=root, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_settings(checkout: UserCheckout) -> _CheckoutSettings:
    """Return the user's git settings for writing files, and the names of their filters."""
    said = query_git_as_user(checkout.folder, "config", "-z", "--get-regexp", r"^(core|filter)\.")
    pairs = [entry.partition("\n")[::2] for entry in os.fsdecode(said.stdout).split("\0") if entry]
    settings = dict(pairs)
    names = (f"core.{name}" for name in _FILE_SETTINGS)
    options = tuple(
        part for name in names if name in settings for part in ("-c", f"{name}={settings[name]}")
    )
    filters = frozenset(
        name[7:].rpartition(".")[0] for name, value in pairs if name.startswith("filter.") and value
    )

    return _CheckoutSettings(
        options,
        filters,
        settings.get("core.sparsecheckout", "false") not in ("false", "0", "no", ""),
    )
