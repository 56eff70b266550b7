"""All that an agent changed, from the file system and from git, as values that `rules.scope.judge` takes.

The disk decides: `changes` is what differs there from the commit that the checkout was made from. What an agent
committed or staged and the disk no longer shows is in `passing`: it is not delivered, and a reviewer sees it.
A submodule is always among the changes, even if only the agent's git knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.scope import LITTER, Change, ChangeKind, Mode
from phasegate.errors import StateConflict
from phasegate.workspace.agent_git_reader import fingerprint, read_index
from phasegate.workspace.agent_history import History, read_history, staged_changes
from phasegate.workspace.checkout import (
    Checkout,
    Record,
    ignore_rules_of,
    kept_index,
    opened_root,
    records_folder,
    start_from,
)
from phasegate.workspace.checkout_files import CheckoutLimits, Found, LimitReached
from phasegate.workspace.checkout_scan import Start, Survey, survey
from phasegate.workspace.index_file import Snapshot
from phasegate.workspace.repository import temporary_folder
from phasegate.workspace.submodules import altered_in_submodules
from phasegate.workspace.tree_diff import Difference

DEFAULT_LIMITS = CheckoutLimits()


class Observation(NamedTuple):
    """What an agent has done to its checkout."""

    changes: tuple[Change, ...]
    passing: tuple[Change, ...]
    git_directory: tuple[Change, ...]  # seen, and of no effect: nothing in there is believed
    history: History
    versions: Mapping[str, Found | None]  # of each changed path as it lies on the disk; None: it is gone
    ignored: tuple[str, ...]
    tracked: Snapshot


class TooMuch(NamedTuple):
    """An agent left more than we look at."""

    what: str
    limit: int


def observe(
    checkout: Checkout, *, limits: CheckoutLimits = DEFAULT_LIMITS, litter: Iterable[str] = LITTER
) -> Observation | TooMuch:
    """Look at everything once. Nothing in the checkout is executed, followed or believed."""
    repository, record = checkout.repository, checkout.record
    index = kept_index(repository, records_folder(repository, checkout.assignment.name), record.start)
    start = start_from(index, record, repository)
    rules = ignore_rules_of(repository, start.snapshot, tuple(litter))
    try:
        with opened_root(record) as root, temporary_folder(repository) as room:
            surveyed = survey(root, start, rules, limits)
            altered = altered_in_submodules(
                repository, record.start, _filled(record, start), root, start.stamp_ns, tuple(litter)
            )
            surveyed.found.update(dict.fromkeys(altered, Found(Mode.SUBMODULE.value)))
            history = read_history(root, repository, record.start, room / "objects", limits)
            staged = _staged(root, checkout, index, room)
            planted = _planted(root, checkout)
    except LimitReached as error:
        return TooMuch(error.what, error.limit)
    except OSError as error:
        raise StateConflict(
            f"{record.folder} cannot be read: {error}", "something still writes there, perhaps"
        ) from error
    return _observation(surveyed, start.snapshot, history, staged, planted)


def _filled(record: Record, start: Start) -> tuple[str, ...]:
    """The submodules that we wrote into the checkout."""
    laid = ((path, start.snapshot.get(path)) for path in record.set_aside)
    return tuple(path for path, was in laid if was is not None and was.mode_text == Mode.SUBMODULE.value)


def _staged(root: int, checkout: Checkout, own: bytes, room: Path) -> list[Difference]:
    theirs = read_index(root)
    if theirs is None or theirs == own:
        return []
    return staged_changes(checkout.repository, theirs, checkout.start, room) or []


def _planted(root: int, checkout: Checkout) -> tuple[Change, ...]:
    ours, now = checkout.record.git_files, fingerprint(root, checkout.repository.hash_name)
    paths = sorted(path for path in ours.keys() | now.keys() if ours.get(path) != now.get(path))
    return tuple(Change(ChangeKind.GIT_DIRECTORY, path) for path in paths)


def _observation(
    surveyed: Survey, tracked: Snapshot, history: History, staged: list[Difference], planted: tuple[Change, ...]
) -> Observation:
    versions: dict[str, Found | None] = {**dict.fromkeys(surveyed.missing), **surveyed.found}
    committed = [change for commit in history.commits for change in commit.changes]
    links = {change.path: change for change in (*committed, *staged) if _adds_link(change)}
    changes = [*_changes(versions, tracked), *(_of(change) for path, change in links.items() if path not in versions)]
    passing = {change.path: change for change in (*committed, *staged)}
    return Observation(
        tuple(changes),
        tuple(_of(change) for path, change in passing.items() if path not in versions and path not in links),
        planted,
        history,
        versions,
        tuple(surveyed.ignored),
        tracked,
    )


def _adds_link(change: Difference) -> bool:
    return change.new is not None and change.new.mode == Mode.SUBMODULE.value and change.old != change.new


def _changes(versions: Mapping[str, Found | None], tracked: Snapshot) -> list[Change]:
    """One value for each path; a path that went away and one that came with the same content are one rename."""
    gone = {path: tracked.get(path) for path, found in versions.items() if found is None}
    sources = {entry.id_text: path for path, entry in sorted(gone.items()) if entry is not None}
    found: list[Change] = []
    for path, now in sorted(versions.items()):
        was = tracked.get(path)
        if now is None or was is not None or now.object_id not in sources:
            continue
        old_path = sources.pop(now.object_id)
        old = gone.pop(old_path)
        assert old is not None
        found.append(Change(ChangeKind.RENAMED, path, now.mode, old.mode_text, old_path, now.link_target))
    renamed = {change.path for change in found}
    for path, now in sorted(versions.items()):
        if path not in renamed and (now is not None or path in gone):
            found.append(_change(path, now, tracked))
    return sorted(found, key=lambda change: change.path)


def _change(path: str, now: Found | None, tracked: Snapshot) -> Change:
    was = tracked.get(path)
    old_mode = "" if was is None else was.mode_text
    if now is None:
        return Change(ChangeKind.DELETED, path, "", old_mode)
    kind = ChangeKind.ADDED if was is None else ChangeKind.MODIFIED
    return Change(kind, path, now.mode, old_mode, None, now.link_target)


def _of(change: Difference) -> Change:
    old_mode = "" if change.old is None else change.old.mode
    if change.new is None:
        return Change(ChangeKind.DELETED, change.path, "", old_mode)
    kind = ChangeKind.ADDED if change.old is None else ChangeKind.MODIFIED
    return Change(kind, change.path, change.new.mode, old_mode)
