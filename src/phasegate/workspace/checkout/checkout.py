"""The record of an agent's checkout: its folder, its start commit, and its initial state.

The record is in Phasegate's folder of the user's git directory, never in the checkout.
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
from phasegate.files.safe_open import folder_descriptor
from phasegate.git import git
from phasegate.typed import read_value
from phasegate.workspace.checkout.agent_git_reader import fingerprint_git_files
from phasegate.workspace.checkout.checkout_scan import CheckoutStart
from phasegate.workspace.repository.ignore import IgnoreRules
from phasegate.workspace.repository.index_file import (
    IndexSnapshot,
    has_valid_checksum,
    parse_index,
    to_index_entry,
)
from phasegate.workspace.repository.repository import Repository, read_blobs, temporary_folder

WORKTREES_FOLDER = ".worktrees"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock\b)){0,98}[A-Za-z0-9]|[A-Za-z0-9]")


class Assignment(NamedTuple):
    """The work that a checkout is for: a package, or another run of a feature.

    Each agent of a package has its own assignment. An attempt in a contest also has its own branch.
    """

    slug: str
    # Such as `WP01`
    work_id: str
    agent_index: int | None = None
    attempt: int | None = None

    @property
    def name(self) -> str:
        return self.branch.removeprefix("feat/") + (
            "" if self.agent_index is None else f"-agent{self.agent_index}"
        )

    @property
    def branch(self) -> str:
        return f"feat/{self.slug}-{self.work_id}" + (
            "" if self.attempt is None else f"-try{self.attempt + 1}"
        )

    @property
    def feature_branch(self) -> str:
        return f"feat/{self.slug}"


class CheckoutRecord(msgspec.Struct, frozen=True):
    """The stored facts about a checkout."""

    folder: str
    device: int
    inode: int
    # The commit that changes are compared with
    start: str
    stamp_ns: int
    set_aside: tuple[str, ...]
    # Security-relevant files that Phasegate wrote into the agent's git directory, with their ids
    git_files: dict[str, str]
    # Paths that were ever harvested from this checkout
    paths: tuple[str, ...] = ()
    # After a conflict: the branch's commit that the next harvest merges with the start
    joins: str | None = None
    # The branch's commit after the last harvest from this checkout
    tip: str | None = None
    # The agent's own commit up to which its history was harvested
    taken: str | None = None
    # Head of the feature branch when the checkout was created; if empty, the same as `start`
    base: str = ""
    # `tip` and `taken` of a harvest that may not have been completed
    pending: tuple[str, str] | None = None
    # Paths of programs that Phasegate added to the checkout
    programs: tuple[str, ...] = ()


class Checkout(NamedTuple):
    """An existing checkout. `conflicts` are files with merge conflict markers."""

    repository: Repository
    assignment: Assignment
    record: CheckoutRecord
    conflicts: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return Path(self.record.folder)

    @property
    def start(self) -> str:
        return self.record.start

    @property
    def base(self) -> str:
        """The commit that the whole work of the package is compared with.

        It can be older than `start`, because a lost checkout is created again from the harvested
        work.
        """
        return self.record.base or self.record.start


def validate_names(assignment: Assignment) -> None:
    """Raise an error for names that could leave the folder or are not valid in a branch name."""
    for name in (assignment.slug, assignment.work_id):
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!a} cannot be part of a branch or folder name",
                "use letters, digits and hyphens",
            )


def records_folder(repository: Repository, name: str) -> Path:
    return repository.own_folder / "checkouts" / name


def read_record(folder: Path) -> CheckoutRecord | None:
    """Return the record of a checkout, or None if it is missing or damaged."""
    try:
        return read_value(json.loads((folder / "record.json").read_bytes()), CheckoutRecord)
    except (FileNotFoundError, ValueError):
        return None


def write_record(folder: Path, record: CheckoutRecord) -> None:
    """Replace a record durably and atomically."""
    # `json` can encode file names that are not valid UTF-8, msgspec cannot
    text = json.dumps(msgspec.to_builtins(record))
    replace_file(folder / "record.json", text.encode(), 0o666)


def find_checkout(repository: Repository, assignment: Assignment) -> Checkout | None:
    """Return the checkout of an assignment.

    Return None if it does not exist, or if its folder is not the one that was created.
    """
    validate_names(assignment)
    record = locate_folder(repository, read_record(records_folder(repository, assignment.name)))
    if record is None:
        return None
    return Checkout(repository, assignment, record)


def list_checkouts(repository: Repository) -> list[tuple[str, CheckoutRecord]]:
    """Return the name and record of every existing checkout."""
    folders = sorted((repository.own_folder / "checkouts").glob("*/record.json"))
    found = (
        (path.parent.name, locate_folder(repository, read_record(path.parent))) for path in folders
    )
    return [(name, record) for name, record in found if record is not None]


def list_package_checkouts(repository: Repository, slug: str, package: str) -> list[Checkout]:
    """Return a package's checkout, or one checkout for each of its agents."""
    name = f"{slug}-{package}"
    found = []
    for checkout_name, record in list_checkouts(repository):
        suffix = checkout_name.removeprefix(name)
        if checkout_name == name or (suffix != checkout_name and suffix.startswith("-agent")):
            index = suffix.removeprefix("-agent")
            assignment = Assignment(slug, package, int(index) if index else None)
            found.append(Checkout(repository, assignment, record))
    return found


def locate_folder(repository: Repository, record: CheckoutRecord | None) -> CheckoutRecord | None:
    """Return the record with the current numbers of its folder, or None if it was replaced.

    A restart can change the number of a device, and a restored backup that of a folder. The folder
    is the same if the agent's git directory has the files that Phasegate wrote.
    """
    if record is None:
        return None

    try:
        with folder_descriptor(record.folder) as root:
            if _is_recorded_folder(root, record):
                return record
            if fingerprint_git_files(root, repository.hash_name) != record.git_files:
                return None
            about = os.fstat(root)
    except OSError:
        return None

    return msgspec.structs.replace(record, device=about.st_dev, inode=about.st_ino)


@contextmanager
def checkout_descriptor(record: CheckoutRecord) -> Iterator[int]:
    """Open the checkout's folder for a `with` block; raise an error if the folder was replaced."""
    try:
        with folder_descriptor(record.folder) as root:
            if not _is_recorded_folder(root, record):
                raise _replaced_error(record)

            yield root
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _replaced_error(record) from error


def _is_recorded_folder(root: int, record: CheckoutRecord) -> bool:
    about = os.fstat(root)
    return (about.st_dev, about.st_ino) == (record.device, record.inode)


def _replaced_error(record: CheckoutRecord) -> StateConflict:
    return StateConflict(
        f"{record.folder} was replaced by another folder", "move it aside, then dispatch again"
    )


def load_index(repository: Repository, records: Path, start: str) -> bytes:
    """Return the index as it was when the checkout was created.

    A lost index is rebuilt from the commit. Then no file has the recorded times, so contents are
    compared.
    """
    try:
        kept = (records / "index").read_bytes()
    except FileNotFoundError:
        kept = b""

    if has_valid_checksum(kept, repository.hash_name):
        return kept

    with temporary_folder(repository) as room:
        git(repository.place(room / "index"), "read-tree", start)
        return (room / "index").read_bytes()


def load_start(index: bytes, record: CheckoutRecord, repository: Repository) -> CheckoutStart:
    snapshot = parse_index(index, repository.hash_name)
    return CheckoutStart(
        snapshot, record.stamp_ns, repository.hash_name, frozenset(record.set_aside)
    )


def ignore_rules_loader(
    repository: Repository, snapshot: IndexSnapshot, litter: tuple[str, ...]
) -> Callable[[], IgnoreRules]:
    """Return a function that loads the ignore rules of a checkout's start commit."""

    def load() -> IgnoreRules:
        """Load the ignore rules from the .gitignore files of a snapshot."""
        named = {
            folder: names[".gitignore"]
            for folder, names in snapshot.folders.items()
            if ".gitignore" in names
        }
        entries = {folder: to_index_entry(state) for folder, state in named.items()}
        ids = {
            folder: entry.object_id
            for folder, entry in entries.items()
            if entry.mode.startswith("100")
        }
        contents = read_blobs(repository.place(), ids.values())

        return IgnoreRules(
            {folder: contents[object_id] for folder, object_id in ids.items()}, litter
        )

    return load
