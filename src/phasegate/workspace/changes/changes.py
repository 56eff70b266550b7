"""Collect all changes of an agent, from the file system and git, as input for the scope check.

`changes` has the differences between the files on disk and the commit that the checkout was created
from. Changes that an agent committed or staged but later undid are in `transient_changes`: they are
not delivered, but a reviewer sees them. A submodule always counts as a change, even if only the
agent's git contains it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.scope import LITTER_PATTERNS, ChangeKind, FileChange, FileMode
from phasegate.errors import StateConflict
from phasegate.workspace.changes.agent_history import (
    AgentHistory,
    read_agent_history,
    read_staged_changes,
)
from phasegate.workspace.checkout.agent_git_reader import fingerprint_git_files, read_agent_index
from phasegate.workspace.checkout.checkout import (
    Checkout,
    CheckoutRecord,
    checkout_descriptor,
    ignore_rules_loader,
    load_index,
    load_start,
    records_folder,
)
from phasegate.workspace.checkout.checkout_scan import (
    CheckoutScanResult,
    CheckoutStart,
    scan_checkout,
)
from phasegate.workspace.checkout.submodules import find_submodule_changes
from phasegate.workspace.repository.disk_files import CheckoutLimits, DiskEntry, LimitReached
from phasegate.workspace.repository.index_file import IndexSnapshot
from phasegate.workspace.repository.repository import temporary_folder
from phasegate.workspace.repository.tree_diff import Difference

DEFAULT_LIMITS = CheckoutLimits()


class Observation(NamedTuple):
    """Everything that an agent changed in its checkout."""

    changes: tuple[FileChange, ...]
    transient_changes: tuple[FileChange, ...]
    # Only reported; nothing in the git directory is trusted
    git_directory_changes: tuple[FileChange, ...]
    history: AgentHistory
    # Each changed path as it is on disk; None if it was removed
    versions: Mapping[str, DiskEntry | None]
    ignored_paths: tuple[str, ...]
    tracked_files: IndexSnapshot


class CheckoutTooLarge(NamedTuple):
    """The checkout exceeds the limits for inspection."""

    what: str
    limit: int


def observe_checkout(
    checkout: Checkout,
    *,
    limits: CheckoutLimits = DEFAULT_LIMITS,
    litter: Iterable[str] = LITTER_PATTERNS,
) -> Observation | CheckoutTooLarge:
    """Inspect the whole checkout once.

    No file in it is executed, no link is followed, and no data is trusted.
    """
    repository = checkout.repository
    record = checkout.record
    index = load_index(
        repository, records_folder(repository, checkout.assignment.name), record.start
    )
    start = load_start(index, record, repository)
    rules = ignore_rules_loader(repository, start.snapshot, tuple(litter))

    try:
        with checkout_descriptor(record) as root, temporary_folder(repository) as room:
            surveyed = scan_checkout(root, start, rules, limits)
            altered = find_submodule_changes(
                repository=repository,
                tree=record.start,
                filled=_list_filled_submodules(record, start),
                root=root,
                stamp_ns=start.stamp_ns,
                litter=tuple(litter),
            )

            surveyed.found.update(dict.fromkeys(altered, DiskEntry(FileMode.SUBMODULE.value)))
            history = read_agent_history(root, repository, record.start, room / "objects", limits)
            staged = _read_staged_differences(root, checkout, index, room)
            planted = _find_git_directory_changes(root, checkout)
    except LimitReached as error:
        return CheckoutTooLarge(error.what, error.limit)
    except OSError as error:
        raise StateConflict(
            f"{record.folder} cannot be read: {error}",
            "a process may still be writing to it; try again",
        ) from error

    return _build_observation(surveyed, start.snapshot, history, staged, planted)


def _list_filled_submodules(record: CheckoutRecord, start: CheckoutStart) -> tuple[str, ...]:
    """Return the submodules whose files Phasegate wrote into the checkout."""
    laid = ((path, start.snapshot.get(path)) for path in record.set_aside)
    return tuple(
        path for path, was in laid if was is not None and was.mode == FileMode.SUBMODULE.value
    )


def _read_staged_differences(
    root: int, checkout: Checkout, own_index: bytes, temp_folder: Path
) -> list[Difference]:
    theirs = read_agent_index(root)
    if theirs is None or theirs == own_index:
        return []
    return read_staged_changes(checkout.repository, theirs, checkout.start, temp_folder) or []


def _find_git_directory_changes(root: int, checkout: Checkout) -> tuple[FileChange, ...]:
    ours = checkout.record.git_files
    now = fingerprint_git_files(root, checkout.repository.hash_name)
    paths = sorted(path for path in ours.keys() | now.keys() if ours.get(path) != now.get(path))
    return tuple(FileChange(ChangeKind.GIT_DIRECTORY, path) for path in paths)


def _build_observation(
    scan: CheckoutScanResult,
    tracked: IndexSnapshot,
    history: AgentHistory,
    staged: list[Difference],
    git_directory_changes: tuple[FileChange, ...],
) -> Observation:
    """Combine files on disk, index and history into the observed changes."""
    versions: dict[str, DiskEntry | None] = {**dict.fromkeys(scan.missing), **scan.found}
    committed = [change for commit in history.commits for change in commit.changes]
    links = {change.path: change for change in (*committed, *staged) if _adds_submodule(change)}
    changes = [
        *_find_changes(versions, tracked),
        *(
            _change_from_difference(change)
            for path, change in links.items()
            if path not in versions
        ),
    ]

    passing = {change.path: change for change in (*committed, *staged)}

    return Observation(
        changes=tuple(changes),
        transient_changes=tuple(
            _change_from_difference(change)
            for path, change in passing.items()
            if path not in versions and path not in links
        ),
        git_directory_changes=git_directory_changes,
        history=history,
        versions=versions,
        ignored_paths=tuple(scan.ignored),
        tracked_files=tracked,
    )


def _adds_submodule(change: Difference) -> bool:
    return (
        change.new is not None
        and change.new.mode == FileMode.SUBMODULE.value
        and change.old != change.new
    )


def _find_changes(
    versions: Mapping[str, DiskEntry | None], tracked: IndexSnapshot
) -> list[FileChange]:
    """Return one change per path.

    A removed and an added path with the same content are reported as a rename.
    """
    gone = {path: tracked.get(path) for path, found in versions.items() if found is None}
    sources = {entry.object_id: path for path, entry in sorted(gone.items()) if entry is not None}
    found: list[FileChange] = []

    for path, now in sorted(versions.items()):
        was = tracked.get(path)
        if now is None or was is not None or now.object_id not in sources:
            continue

        old_path = sources.pop(now.object_id)
        old = gone.pop(old_path)
        assert old is not None
        found.append(
            FileChange(
                kind=ChangeKind.RENAMED,
                path=path,
                mode=now.mode,
                old_mode=old.mode,
                old_path=old_path,
                link_target=now.link_target,
            )
        )

    renamed = {change.path for change in found}
    for path, now in sorted(versions.items()):
        if path not in renamed and (now is not None or path in gone):
            found.append(_make_change(path, now, tracked))

    return sorted(found, key=lambda change: change.path)


def _make_change(path: str, now: DiskEntry | None, tracked: IndexSnapshot) -> FileChange:
    """Return the change of a path between the index and the disk."""
    was = tracked.get(path)
    old_mode = "" if was is None else was.mode
    if now is None:
        return FileChange(kind=ChangeKind.DELETED, path=path, mode="", old_mode=old_mode)

    if was is None:
        kind = ChangeKind.ADDED
    else:
        kind = ChangeKind.MODIFIED

    return FileChange(
        kind=kind,
        path=path,
        mode=now.mode,
        old_mode=old_mode,
        old_path=None,
        link_target=now.link_target,
    )


def _change_from_difference(change: Difference) -> FileChange:
    """Convert a difference of two trees to a change."""
    if change.old is None:
        old_mode = ""
    else:
        old_mode = change.old.mode

    if change.new is None:
        return FileChange(kind=ChangeKind.DELETED, path=change.path, mode="", old_mode=old_mode)

    if change.old is None:
        kind = ChangeKind.ADDED
    else:
        kind = ChangeKind.MODIFIED

    return FileChange(kind=kind, path=change.path, mode=change.new.mode, old_mode=old_mode)
