"""Making a checkout: anew, or out of one that is there, which is swept clean first."""

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

from phasegate.core.agents.secrets import NOTHING_LENT, LentValues
from phasegate.core.paths.scope import LITTER
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.durable_write import make_folder, replace_file, sync_file_system
from phasegate.files.safe_open import opened_folder
from phasegate.git import Identity, git
from phasegate.workspace.agent_git_reader import fingerprint
from phasegate.workspace.agent_git_writer import Seedling, write_agents_git
from phasegate.workspace.checkout import (
    WORKTREES,
    Assignment,
    Checkout,
    Record,
    kept_index,
    opened_root,
    read_record,
    records_folder,
    start_from,
    write_record,
)
from phasegate.workspace.checkout_base import Beginning
from phasegate.workspace.checkout_scan import sweep
from phasegate.workspace.objects import Signature
from phasegate.workspace.removal import removal_room, remove_tree
from phasegate.workspace.repository import Repository, keep_out_of_git
from phasegate.workspace.repository_locks import checkout_lock, repository_lock
from phasegate.workspace.submodules import fill_submodules

_log = logging.getLogger(__name__)
_POOL = "pool"
_MOST_IN_POOL = 4


class Laid(NamedTuple):
    """What was put into a checkout besides its commit: never harvested. `programs` are paths of programs in there."""

    paths: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


NOTHING_LAID = Laid()
Furnish = Callable[[Path, Path, str], Laid]  # a folder with the files of a commit; where it will be; the commit


class Terms(NamedTuple):
    """With what a checkout is made. `set_aside` are names in its root that are ours, such as `WP01.md`."""

    agent: Identity
    signature: Signature  # of commits that we make ourselves
    set_aside: tuple[str, ...] = ()
    litter: tuple[str, ...] = LITTER
    worktrees: Path | None = None
    lent: LentValues = NOTHING_LENT  # to agents: never saved
    furnish: Furnish | None = None


class _Used(NamedTuple):
    """A checkout that was taken out of use, in our hands: nothing refers to it any more."""

    record: Record
    index_data: bytes


def home_of(checkout: Checkout) -> Path:
    return checkout.folder.parent


def make(repository: Repository, assignment: Assignment, terms: Terms, begin: Beginning) -> Checkout:
    """Make a checkout where none is, out of the pool if there is one."""
    home = terms.worktrees or repository.root / WORKTREES
    if home.is_symlink() or (home.exists() and not home.is_dir()):
        raise ConfigError(f"{home} is not a folder", "move it away, or set `worktrees` in [paths] of phasegate.toml")
    if not home.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with repository_lock(repository):
            keep_out_of_git(repository, home)
    folder, staging = home / assignment.name, home / f".new-{assignment.name}"
    if os.path.lexists(folder) and not _set_aside(folder, records_folder(repository, assignment.name)):
        raise StateConflict(f"{folder} is there, and was not made by us", "move it away, and dispatch again")
    remove_tree(staging)
    used = _from_pool(repository, home, staging)
    return _Making(repository, assignment, terms, begin, staging).carry_out(folder, used)


def _set_aside(folder: Path, records: Path) -> bool:
    """Put a checkout of ours aside whose record is damaged: nobody knows what in it is whose, and nothing is lost."""
    if not (records / "record.json").exists() or read_record(records) is not None:
        return False
    names = (folder.with_name(f".damaged-{folder.name}-{number}") for number in count(1))
    aside = next(path for path in names if not os.path.lexists(path))
    folder.rename(aside)
    _log.warning("the record of %s is damaged: what it held is in %s, and a new one is made", folder, aside)
    return True


def adopt(checkout: Checkout, terms: Terms, begin: Beginning) -> Checkout:
    """Make a checkout anew out of itself. It is out of use before anything in it is touched."""
    repository, folder = checkout.repository, checkout.folder
    records = records_folder(repository, checkout.assignment.name)
    staging = home_of(checkout) / f".new-{checkout.assignment.name}"
    used = _Used(checkout.record, kept_index(repository, records, checkout.start))
    remove_tree(staging)
    folder.rename(staging)
    (records / "record.json").unlink()
    return _Making(repository, checkout.assignment, terms, begin, staging).carry_out(folder, used)


def retire(checkout: Checkout) -> bool:
    """Keep a checkout's files for the next one; False if there are enough of them."""
    repository, name = checkout.repository, checkout.assignment.name
    with checkout_lock(repository, _POOL):
        pool = repository.ours / _POOL
        taken = {path.name for path in pool.glob("*")}
        free = next((str(n) for n in range(_MOST_IN_POOL) if str(n) not in taken), None)
        if free is None:
            return False
        (home_of(checkout) / ".pool").mkdir(exist_ok=True)
        remove_tree(home_of(checkout) / ".pool" / free)
        checkout.folder.rename(home_of(checkout) / ".pool" / free)
        pool.mkdir(exist_ok=True)
        (records_folder(repository, name)).rename(pool / free)
    return True


def _from_pool(repository: Repository, home: Path, staging: Path) -> _Used | None:
    """Take a checkout out of the pool, if one of this home is there."""
    with checkout_lock(repository, _POOL):
        for records in sorted((repository.ours / _POOL).glob("*")):
            kept = home / ".pool" / records.name
            try:
                record = read_record(records)
                if record is None or not kept.is_dir() or kept.is_symlink():
                    continue
                used = _Used(record, kept_index(repository, records, record.start))
                kept.rename(staging)
            except (OSError, StateConflict):  # damaged: a new one costs little
                continue
            shutil.rmtree(records)
            return used
    return None


def _write_files(repository: Repository, folder: Path, index: Path, commit: str) -> None:
    """Fill an empty folder with the files of a commit."""
    git(repository.place(index, folder), "read-tree", "-m", "-u", commit)


def _mend_files(repository: Repository, folder: Path, index: Path, lost: Sequence[str], old: str, new: str) -> None:
    """Bring a folder from one commit to another. Its index is true but for the lost files: only those are written."""
    place = repository.place(index, folder)
    if lost:
        names = b"".join(os.fsencode(path) + b"\0" for path in lost)
        git(place, "checkout-index", "--force", "--index", "-z", "--stdin", stdin=names)
    if old != new:
        git(place, "read-tree", "-m", "-u", old, new)


class _Making:
    def __init__(
        self, repository: Repository, assignment: Assignment, terms: Terms, begin: Beginning, staging: Path
    ) -> None:
        self._repository, self._assignment = repository, assignment
        self._terms, self._begin, self._staging = terms, begin, staging
        self._records = records_folder(repository, assignment.name)

    def carry_out(self, folder: Path, used: _Used | None) -> Checkout:
        """Write everything beside its place, then the record, then move it there: a death leaves a plain state."""
        make_folder(self._records, 0o777)
        index = self._records / "index.new"
        for left in self._records.glob("index.*"):  # by a git that was cut off: its lock, too
            left.unlink()
        if used is None or not self._mended(used, index):
            index.unlink(missing_ok=True)
            remove_tree(self._staging)
            self._staging.mkdir()
            _write_files(self._repository, self._staging, index, self._begin.start)
        furnish = self._terms.furnish
        filled = fill_submodules(self._repository, self._begin.start, self._staging)
        laid = furnish(self._staging, folder, self._begin.start) if furnish else NOTHING_LAID
        laid = laid._replace(paths=(*filled, *laid.paths))
        record = self._planted(folder, index, laid)
        # What a record leads to is on the disk before it: a file that a power failure emptied looks like an agent's.
        sync_file_system(self._staging)
        index.with_suffix(".head").unlink(missing_ok=True)
        index.replace(self._records / "index")
        write_record(self._records, record)
        self._staging.rename(folder)
        return Checkout(self._repository, self._assignment, record, self._begin.conflicts)

    def _mended(self, used: _Used, index: Path) -> bool:
        """Take out all that is not as we once left it, ignored files and empty folders too; write what is lost."""
        record = replace(used.record, folder=str(self._staging), set_aside=())
        try:
            start = start_from(used.index_data, record, self._repository)
            with opened_root(record) as root, removal_room(self._staging.parent) as room:
                swept = sweep(root, start)
                for path in (".git", *swept.dirty):
                    room.take_beneath(root, path)
            replace_file(index, used.index_data, 0o666)
            _mend_files(self._repository, self._staging, index, swept.lost, record.start, self._begin.start)
        except (OSError, StateConflict):
            return False
        return True

    def _planted(self, folder: Path, index: Path, laid: Laid) -> Record:
        begin, terms = self._begin, self._terms
        if begin.files is not None:
            self._lay_conflicts(index, begin.files)
        set_aside = (*terms.set_aside, *laid.paths)
        excluded = (*(_as_pattern(path) for path in set_aside if path.isprintable()), *terms.litter)
        head = begin.head or begin.start
        seedling = Seedling(self._assignment.branch, head, terms.agent, begin.refs, excluded)
        stamp_ns = write_agents_git(self._repository, self._staging, self._index_at(head, index), seedling)
        with opened_folder(self._staging) as root:
            files = fingerprint(root, self._repository.hash_name)
        about = self._staging.stat()
        return Record(
            folder=str(folder),
            device=about.st_dev,
            inode=about.st_ino,
            start=begin.start,
            base=begin.base,
            stamp_ns=stamp_ns,
            set_aside=set_aside,
            programs=laid.programs,
            git_files=files,
            joins=begin.joins,
        )

    def _index_at(self, head: str, index: Path) -> Path:
        """The index that an agent's git begins with: ours, or one of the commits that it has already."""
        if head == self._begin.start:
            return index
        own = index.with_suffix(".head")
        git(self._repository.place(own), "read-tree", head)
        return own

    def _lay_conflicts(self, index: Path, files: str) -> None:
        """Write the files of a merge over those of the start. The record stays that of the start: they are changes."""
        own = index.with_suffix(".merge")
        shutil.copy2(index, own)
        git(self._repository.place(own, self._staging), "read-tree", "-m", "-u", self._begin.start, files)
        own.unlink()


def _as_pattern(path: str) -> str:
    """A line of an exclude file that means this very path."""
    return "/" + re.sub(r"([\\*?\[ ])", r"\\\1", path)
