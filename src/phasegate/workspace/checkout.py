"""An agent's checkout as we know it: where it is, from which commit it was made, and how we left it.

The record of it lies in our own folder of the person's git directory, never in the checkout.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.errors import ConfigError, StateConflict
from phasegate.files.durable_write import replace_file
from phasegate.files.safe_open import opened_folder
from phasegate.git import git
from phasegate.typed import read_value
from phasegate.workspace.checkout_scan import Start
from phasegate.workspace.ignore import IgnoreRules
from phasegate.workspace.index_file import Snapshot, entry_of, is_whole, read_snapshot
from phasegate.workspace.repository import Repository, read_blobs, temporary_folder

WORKTREES = ".worktrees"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock\b)){0,98}[A-Za-z0-9]|[A-Za-z0-9]")


class Assignment(NamedTuple):
    """Which piece of work a checkout is for: a package, or another run of a feature. Each agent has its own.

    An attempt of a contest has a branch of its own, too.
    """

    slug: str
    work: str  # `WP01`
    agent_index: int | None = None
    attempt: int | None = None

    @property
    def name(self) -> str:
        return self.branch.removeprefix("feat/") + ("" if self.agent_index is None else f"-agent{self.agent_index}")

    @property
    def branch(self) -> str:
        return f"feat/{self.slug}-{self.work}" + ("" if self.attempt is None else f"-try{self.attempt + 1}")

    @property
    def target(self) -> str:
        return f"feat/{self.slug}"


class Record(msgspec.Struct, frozen=True):
    """What must be remembered of a checkout."""

    folder: str
    device: int
    inode: int
    start: str  # changes are counted from this commit
    stamp_ns: int
    set_aside: tuple[str, ...]
    git_files: dict[str, str]  # what we wrote into the agent's git directory, where it matters
    paths: tuple[str, ...] = ()  # those that were ever taken over from here
    joins: str | None = None  # the branch's commit that the next harvest merges with the start, after a conflict
    tip: str | None = None  # the branch's commit after the last harvest from here
    taken: str | None = None  # the agent's own commit up to which its history was taken over
    base: str = ""  # the head of the feature's branch when it was made; empty: the start
    pending: tuple[str, str] | None = None  # `tip` and `taken` of a harvest that may not have come into force
    programs: tuple[str, ...] = ()  # those that we brought, by their paths in the checkout


class Checkout(NamedTuple):
    """A checkout that is there. `conflicts` are files that hold both sides of a merge, with markers."""

    repository: Repository
    assignment: Assignment
    record: Record
    conflicts: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return Path(self.record.folder)

    @property
    def start(self) -> str:
        return self.record.start

    @property
    def base(self) -> str:
        """What the work as a whole is measured from: a checkout that was lost begins anew with what was taken over."""
        return self.record.base or self.record.start


def check_names(assignment: Assignment) -> None:
    """Refuse names that could leave the folder or are no branch."""
    for name in (assignment.slug, assignment.work):
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!a} cannot be part of a branch or folder name", "use letters, digits and hyphens")


def records_folder(repository: Repository, name: str) -> Path:
    return repository.ours / "checkouts" / name


def read_record(folder: Path) -> Record | None:
    """The record in one of our folders; None if there is none, or one that a disk has damaged."""
    try:
        return read_value(json.loads((folder / "record.json").read_bytes()), Record)
    except (FileNotFoundError, ValueError):
        return None


def write_record(folder: Path, record: Record) -> None:
    """Replace a record for good: a reader sees the old or the new one."""
    text = json.dumps(msgspec.to_builtins(record))  # `json` can write names that are no text, msgspec cannot
    replace_file(folder / "record.json", text.encode(), 0o666)


def find_checkout(repository: Repository, assignment: Assignment) -> Checkout | None:
    """The checkout of an assignment, if it is there and still the folder that we made."""
    check_names(assignment)
    record = read_record(records_folder(repository, assignment.name))
    return Checkout(repository, assignment, record) if record is not None and is_intact(record) else None


def list_checkouts(repository: Repository) -> list[tuple[str, Record]]:
    """The name and record of every checkout that is there."""
    folders = sorted((repository.ours / "checkouts").glob("*/record.json"))
    found = ((path.parent.name, read_record(path.parent)) for path in folders)
    return [(name, record) for name, record in found if record is not None and is_intact(record)]


def is_intact(record: Record) -> bool:
    """Whether the folder is there and is the one that we made."""
    try:
        with opened_folder(record.folder) as root:
            return _is_recorded(root, record)
    except OSError:
        return False


@contextmanager
def opened_root(record: Record) -> Iterator[int]:
    """A descriptor of the checkout; another folder in its place is refused."""
    try:
        with opened_folder(record.folder) as root:
            if not _is_recorded(root, record):
                raise _replaced(record)
            yield root
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _replaced(record) from error


def _is_recorded(root: int, record: Record) -> bool:
    about = os.fstat(root)
    return (about.st_dev, about.st_ino) == (record.device, record.inode)


def _replaced(record: Record) -> StateConflict:
    return StateConflict(f"{record.folder} is not the folder that was made", "move it away, and dispatch again")


def kept_index(repository: Repository, records: Path, start: str) -> bytes:
    """The index as we left a checkout. One that a failed disk has lost is made from the commit: contents are compared
    then, for no file has the times that it says."""
    try:
        kept = (records / "index").read_bytes()
    except FileNotFoundError:
        kept = b""
    if is_whole(kept, repository.hash_name):
        return kept
    with temporary_folder(repository) as room:
        git(repository.place(room / "index"), "read-tree", start)
        return (room / "index").read_bytes()


def start_from(index: bytes, record: Record, repository: Repository) -> Start:
    snapshot = read_snapshot(index, repository.hash_name)
    return Start(snapshot, record.stamp_ns, repository.hash_name, frozenset(record.set_aside))


def ignore_rules_of(repository: Repository, snapshot: Snapshot, litter: tuple[str, ...]) -> Callable[[], IgnoreRules]:
    """The ignore rules of the commit from which a checkout was made, read when they are first needed."""

    def load() -> IgnoreRules:
        named = {folder: names[".gitignore"] for folder, names in snapshot.folders.items() if ".gitignore" in names}
        entries = {folder: entry_of(state) for folder, state in named.items()}
        ids = {folder: entry.id_text for folder, entry in entries.items() if entry.mode_text.startswith("100")}
        contents = read_blobs(repository.place(), ids.values())
        return IgnoreRules({folder: contents[object_id] for folder, object_id in ids.items()}, litter)

    return load
