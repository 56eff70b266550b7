"""A person's exceptions to the scope of a package. A protected path is allowed as it was shown, and no further."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.core.paths.scope import PROTECTED, is_protected, why_no_scope_allows
from phasegate.core.plan.work_package import WorkPackage, entry_problem
from phasegate.core.text.visible import visible
from phasegate.core.workflow.origin import NOT_KEPT, By
from phasegate.engine.journal.entries import SCOPE_ALLOWED, ScopeException
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.text_file import read_plain_file
from phasegate.storage.rows import Event
from phasegate.workspace.checkout import Assignment, Checkout, list_checkouts
from phasegate.workspace.commit_log import blobs_of
from phasegate.workspace.repository import read_blobs

ABSENT = "absent"
LARGEST_BYTES = 1_000_000


class Shown(NamedTuple):
    """A change to a protected path, as a person decides about it."""

    content: str
    diff: str


def protected_paths(project: Project) -> tuple[str, ...]:
    """What only a person lets an agent change: the shipped list and the person's own."""
    return (*PROTECTED, *project.config.protect.paths)


def shown_change(project: Project, package: WorkPackage, path: str) -> Shown:
    """What an exception for a path would be for: the change to a protected one, nothing in particular for another."""
    if problem := entry_problem(path) or why_no_scope_allows(path, (*OWN_FOLDERS, project.config.paths.worktrees)):
        raise ConfigError(f"{visible(path)} {problem}: no scope allows it", "nothing was recorded")
    return _change_of(project, package, path) if is_protected(path, protected_paths(project)) else Shown("", "")


def allow_path(
    project: Project,
    record: RunRecord,
    package: WorkPackage,
    path: str,
    reason: str,
    by: By = NOT_KEPT,
    seen: str | None = None,
) -> str:
    """Record an exception; for a protected path, the change that it is for, which is returned to be shown.

    `seen` is the content that a person was shown before: another one is a refusal.
    """
    shown = shown_change(project, package, path)
    if seen is not None and seen != shown.content:
        raise StateConflict(
            f"the change to {visible(path)} was not shown", "look at the change as it is now, then allow it"
        )
    exception = ScopeException(package.work_package_id, path, reason, by, shown.content)
    record.append_now(package.feature_slug, project.now(), [Event(SCOPE_ALLOWED, msgspec.json.encode(exception))])
    return shown.diff


def allowed_paths(exceptions: Iterable[ScopeException], checkout: Path) -> tuple[str, ...]:
    """The exceptions that hold in a checkout now: a protected path only while it is as the person saw it."""
    return tuple(one.path for one in exceptions if one.content in ("", content_of(checkout, one.path)))


def content_of(checkout: Path, path: str) -> str:
    """What tells one content of a file from another. What cannot be read as a plain text file equals nothing."""
    place = checkout / path
    if not place.exists() and not place.is_symlink():
        return ABSENT
    try:
        file = read_plain_file(place, LARGEST_BYTES)
    except ConfigError:
        return "unreadable"
    return hashlib.sha256(f"{file.mode & 0o111:o} {file.text}".encode()).hexdigest()


def _change_of(project: Project, package: WorkPackage, path: str) -> Shown:
    """What an agent did to a protected path, in whichever checkout of the package it did so."""
    for checkout in _checkouts(project, package):
        before = _text_before(project, checkout, path)
        content = content_of(checkout.folder, path)
        after = "" if content == ABSENT else read_plain_file(checkout.folder / path, LARGEST_BYTES).text
        if after != before:
            lines = unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
            return Shown(content, "".join(lines))
    raise ConfigError(
        f"{path} is protected, and {package.work_package_id} has not changed it",
        f"phasegate dispatch {package.work_package_id} stops when an agent has; then allow the change that you see",
    )


def _checkouts(project: Project, package: WorkPackage) -> Iterator[Checkout]:
    name = f"{package.feature_slug}-{package.work_package_id}"
    for found, record in list_checkouts(project.repository):
        if found.partition("-agent")[0] == name:
            index = found.removeprefix(name).removeprefix("-agent")
            assignment = Assignment(package.feature_slug, package.work_package_id, int(index) if index else None)
            yield Checkout(project.repository, assignment, record)


def _text_before(project: Project, checkout: Checkout, path: str) -> str:
    blob = blobs_of(project.repository, checkout.start).get(path)
    return read_blobs(project.repository.place(), [blob])[blob].decode(errors="replace") if blob else ""
