"""Create a checkout, or recreate one by cleaning an existing folder."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.core.agents.secrets import NO_SECRETS, SecretMatcher
from phasegate.core.paths.scope import LITTER_PATTERNS
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.durable_write import (
    make_folder,
    replace_file,
    sync_file_system,
    sync_folders,
)
from phasegate.files.safe_open import folder_descriptor
from phasegate.git import Identity, git
from phasegate.workspace.checkout.agent_git_reader import fingerprint_git_files
from phasegate.workspace.checkout.agent_git_writer import (
    ALTERNATES_PATH,
    AgentGitSpec,
    alternates_content,
    write_agent_git_dir,
)
from phasegate.workspace.checkout.checkout import (
    WORKTREES_FOLDER,
    Assignment,
    Checkout,
    CheckoutRecord,
    checkout_descriptor,
    load_index,
    load_start,
    read_record,
    records_folder,
    write_record,
)
from phasegate.workspace.checkout.checkout_base import StartPoint
from phasegate.workspace.checkout.checkout_scan import plan_cleanup
from phasegate.workspace.checkout.removal import open_trash_folder, remove_tree
from phasegate.workspace.checkout.submodules import fill_submodules
from phasegate.workspace.repository.disk_files import read_beneath
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.repository import Repository, exclude_folder_from_git
from phasegate.workspace.repository.repository_locks import checkout_lock, repository_lock

_log = logging.getLogger(__name__)
_POOL_FOLDER = "pool"
_MAX_POOL_SIZE = 4
_MAX_ALTERNATES_BYTES = 64 * 1024


class PlacedFiles(NamedTuple):
    """Files that Phasegate added to a checkout, which are never harvested.

    `programs` are the paths of programs among them.
    """

    paths: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


NO_PLACED_FILES = PlacedFiles()
# Arguments: a folder with the files of a commit, its final path, the commit
CheckoutPopulator = Callable[[Path, Path, str], PlacedFiles]


class CheckoutOptions(NamedTuple):
    """How a checkout is created.

    `set_aside` are the names of files in its root that belong to Phasegate, such as `WP01.md`.
    """

    agent: Identity
    # Signature of commits by Phasegate
    signature: Signature
    set_aside: tuple[str, ...] = ()
    litter: tuple[str, ...] = LITTER_PATTERNS
    worktrees: Path | None = None
    # Secrets that were passed to agents, and must never be saved
    lent: SecretMatcher = NO_SECRETS
    populate: CheckoutPopulator | None = None


class _RetiredCheckout(NamedTuple):
    """A checkout that is no longer in use, and whose files can be reused."""

    record: CheckoutRecord
    index_data: bytes


def get_worktrees_folder(checkout: Checkout) -> Path:
    return checkout.folder.parent


def create_checkout(
    repository: Repository,
    assignment: Assignment,
    options: CheckoutOptions,
    start_point: StartPoint,
) -> Checkout:
    """Create a checkout, reusing the files of one from the pool if possible."""
    home = options.worktrees or repository.root / WORKTREES_FOLDER

    if home.is_symlink() or (home.exists() and not home.is_dir()):
        raise ConfigError(
            f"{home} is not a folder",
            "move it aside, or set `worktrees` in [paths] of phasegate.toml",
        )

    if not home.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with repository_lock(repository):
            exclude_folder_from_git(repository, home)

    folder = home / assignment.name
    staging = home / f".new-{assignment.name}"

    if os.path.lexists(folder):
        if not _is_own_folder(repository, folder, records_folder(repository, assignment.name)):
            raise StateConflict(
                f"{folder} exists and was not created by Phasegate",
                "move it aside, then dispatch again",
            )
        _move_aside(folder)

    remove_tree(staging)
    retired = _take_from_pool(repository, home, staging)

    builder = _CheckoutBuilder(
        repository=repository,
        assignment=assignment,
        options=options,
        start_point=start_point,
        staging=staging,
    )
    return builder.build(folder, retired)


def _is_own_folder(repository: Repository, folder: Path, records: Path) -> bool:
    """Return True if Phasegate created a folder that has no usable record.

    Its record is damaged or names the folder's number, or its git directory reads the objects of
    this repository as only a checkout does.
    """
    if not folder.is_dir() or folder.is_symlink():
        return False

    record = read_record(records)
    if record is None and (records / "record.json").exists():
        return True
    if record is not None and record.inode == folder.stat().st_ino:
        return True

    with folder_descriptor(folder) as root:
        link = read_beneath(root, ALTERNATES_PATH, _MAX_ALTERNATES_BYTES)
    # Checkouts of earlier versions read all objects of the repository.
    earlier = b"%s\n" % os.fsencode(repository.objects)
    return link in (alternates_content(repository), earlier)


def _move_aside(folder: Path) -> None:
    """Rename the folder of a checkout without a usable record, so that no work is lost."""
    names = (folder.with_name(f".damaged-{folder.name}-{number}") for number in count(1))
    aside = next(path for path in names if not os.path.lexists(path))
    folder.rename(aside)
    _log.warning(
        "the record of %s is missing or damaged: the checkout was moved to %s and is created again",
        folder,
        aside,
    )


def recreate_checkout(
    checkout: Checkout, options: CheckoutOptions, start_point: StartPoint
) -> Checkout:
    """Recreate a checkout in place, after renaming its folder and deleting its record."""
    repository = checkout.repository
    folder = checkout.folder
    records = records_folder(repository, checkout.assignment.name)
    staging = get_worktrees_folder(checkout) / f".new-{checkout.assignment.name}"
    retired = _RetiredCheckout(checkout.record, load_index(repository, records, checkout.start))
    remove_tree(staging)
    folder.rename(staging)
    # A power failure must not bring back the folder without its record
    sync_folders(staging.parent, staging.parent)
    (records / "record.json").unlink()

    builder = _CheckoutBuilder(
        repository=repository,
        assignment=checkout.assignment,
        options=options,
        start_point=start_point,
        staging=staging,
    )
    return builder.build(folder, retired)


def move_to_pool(checkout: Checkout) -> bool:
    """Move a checkout to the pool for reuse; return False if the pool is full."""
    repository = checkout.repository
    name = checkout.assignment.name
    with checkout_lock(repository, _POOL_FOLDER):
        pool = repository.own_folder / _POOL_FOLDER
        taken = {path.name for path in pool.glob("*")}
        free = next((str(n) for n in range(_MAX_POOL_SIZE) if str(n) not in taken), None)
        if free is None:
            return False

        (get_worktrees_folder(checkout) / ".pool").mkdir(exist_ok=True)
        remove_tree(get_worktrees_folder(checkout) / ".pool" / free)
        checkout.folder.rename(get_worktrees_folder(checkout) / ".pool" / free)
        sync_folders(get_worktrees_folder(checkout), get_worktrees_folder(checkout))
        pool.mkdir(exist_ok=True)
        (records_folder(repository, name)).rename(pool / free)

    return True


def _take_from_pool(
    repository: Repository, worktrees_folder: Path, staging: Path
) -> _RetiredCheckout | None:
    """Take a checkout out of the pool of this worktrees folder; None if the pool is empty."""
    with checkout_lock(repository, _POOL_FOLDER):
        for records in sorted((repository.own_folder / _POOL_FOLDER).glob("*")):
            kept = worktrees_folder / ".pool" / records.name
            try:
                record = read_record(records)
                if record is None or not kept.is_dir() or kept.is_symlink():
                    continue

                retired = _RetiredCheckout(record, load_index(repository, records, record.start))
                kept.rename(staging)
            except (OSError, StateConflict):
                # Skip a damaged one: creating a new checkout is cheap
                continue

            shutil.rmtree(records)
            return retired

    return None


def _write_files(repository: Repository, folder: Path, index: Path, commit: str) -> None:
    """Fill an empty folder with the files of a commit."""
    git(repository.place(index, folder), "read-tree", "-m", "-u", commit)


def _restore_files(
    repository: Repository, folder: Path, index: Path, missing: Sequence[str], old: str, new: str
) -> None:
    """Update a folder from one commit to another, writing only missing and differing files."""
    place = repository.place(index, folder)
    if missing:
        names = b"".join(os.fsencode(path) + b"\0" for path in missing)
        git(place, "checkout-index", "--force", "--index", "-z", "--stdin", stdin=names)
    if old != new:
        git(place, "read-tree", "-m", "-u", old, new)


class _CheckoutBuilder(NamedTuple):
    repository: Repository
    assignment: Assignment
    options: CheckoutOptions
    start_point: StartPoint
    staging: Path

    @property
    def records(self) -> Path:
        return records_folder(self.repository, self.assignment.name)

    def build(self, folder: Path, retired: _RetiredCheckout | None) -> Checkout:
        """Write all files under a temporary name, then the record, then rename the folder.

        In this order, the state that a crash leaves is easy to recognize.
        """
        make_folder(self.records, 0o777)
        index = self.records / "index.new"
        # Leftovers of an interrupted git process, including its lock file
        for left in self.records.glob("index.*"):
            left.unlink()

        if retired is None or not self._restore_retired(retired, index):
            index.unlink(missing_ok=True)
            remove_tree(self.staging)
            self.staging.mkdir()
            _write_files(self.repository, self.staging, index, self.start_point.start)

        populate = self.options.populate
        filled = fill_submodules(self.repository, self.start_point.start, self.staging)
        if populate:
            placed = populate(self.staging, folder, self.start_point.start)
        else:
            placed = NO_PLACED_FILES

        placed = placed._replace(paths=(*filled, *placed.paths))
        record = self._write_git_dir(folder, index, placed)
        # Sync the files before the record: a file that a power failure emptied would look
        # like an agent's change.
        sync_file_system(self.staging)
        index.with_suffix(".head").unlink(missing_ok=True)
        index.replace(self.records / "index")
        write_record(self.records, record)
        self.staging.rename(folder)

        return Checkout(self.repository, self.assignment, record, self.start_point.conflicts)

    def _restore_retired(self, retired: _RetiredCheckout, index: Path) -> bool:
        """Restore the initial state of a retired checkout; return False if that is not possible.

        Everything that differs is removed, including ignored files and empty folders, and missing
        files are written.
        """
        record = replace(retired.record, folder=str(self.staging), set_aside=())

        try:
            start = load_start(retired.index_data, record, self.repository)
            with (
                checkout_descriptor(record) as root,
                open_trash_folder(self.staging.parent) as room,
            ):
                swept = plan_cleanup(root, start)
                for path in (".git", *swept.dirty):
                    room.remove_beneath(root, path)

            replace_file(index, retired.index_data, 0o666)
            _restore_files(
                repository=self.repository,
                folder=self.staging,
                index=index,
                missing=swept.missing,
                old=record.start,
                new=self.start_point.start,
            )
        except (OSError, StateConflict):
            return False

        return True

    def _write_git_dir(self, folder: Path, index: Path, placed: PlacedFiles) -> CheckoutRecord:
        """Write the agent's own git directory of the checkout."""
        start_point = self.start_point
        options = self.options
        if start_point.files_tree is not None:
            self._write_conflicts(index, start_point.files_tree)

        set_aside = (*options.set_aside, *placed.paths)
        excluded = (
            *(_exclude_pattern(path) for path in set_aside if path.isprintable()),
            *options.litter,
        )
        head = start_point.head or start_point.start
        git_spec = AgentGitSpec(
            branch=self.assignment.branch,
            start=head,
            agent=options.agent,
            refs=start_point.refs,
            excluded=excluded,
        )

        stamp_ns = write_agent_git_dir(
            self.repository, self.staging, self._prepare_agent_index(head, index), git_spec
        )
        with folder_descriptor(self.staging) as root:
            files = fingerprint_git_files(root, self.repository.hash_name)

        about = self.staging.stat()
        return CheckoutRecord(
            folder=str(folder),
            device=about.st_dev,
            inode=about.st_ino,
            start=start_point.start,
            base=start_point.base,
            stamp_ns=stamp_ns,
            set_aside=set_aside,
            programs=placed.programs,
            git_files=files,
            joins=start_point.joins,
        )

    def _prepare_agent_index(self, head: str, index: Path) -> Path:
        """Return the initial index for the agent's git.

        It is the checkout's index, or one for the agent's earlier commits.
        """
        if head == self.start_point.start:
            return index

        own = index.with_suffix(".head")
        git(self.repository.place(own), "read-tree", head)

        return own

    def _write_conflicts(self, index: Path, files_tree: str) -> None:
        """Overwrite the checkout with the conflicted merge's files, conflict markers included.

        The record still describes the start, so these files count as changes.
        """
        own = index.with_suffix(".merge")
        shutil.copy2(index, own)
        git(
            self.repository.place(own, self.staging),
            "read-tree",
            "-m",
            "-u",
            self.start_point.start,
            files_tree,
        )

        own.unlink()


def _exclude_pattern(path: str) -> str:
    """Return the line for an exclude file that matches exactly this path."""
    return "/" + re.sub(r"([\\*?\[ ])", r"\\\1", path)
