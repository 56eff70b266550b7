"""A person's exceptions to the scope of a package.

A protected path is allowed as it was shown, and no further.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.core.paths.scope import PROTECTED_PATTERNS, find_entry_problem, is_protected
from phasegate.core.plan.work_package import WorkPackage, find_scope_entry_problem
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
from phasegate.engine.journal.entries import SCOPE_ALLOWED, ScopeException
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.text_file import read_text_file
from phasegate.storage.rows import NewEvent
from phasegate.workspace.checkout import Assignment, Checkout, list_checkouts
from phasegate.workspace.commit_log import list_blobs
from phasegate.workspace.repository import read_blobs

ABSENT = "absent"
MAX_FILE_BYTES = 1_000_000


class ProtectedChange(NamedTuple):
    """A change to a protected path, as a person decides about it."""

    content: str
    diff: str


def protected_paths(project: Project) -> tuple[str, ...]:
    """What only a person lets an agent change: the shipped list and the person's own."""
    return (*PROTECTED_PATTERNS, *project.config.protect.paths)


def preview_path_change(project: Project, package: WorkPackage, path: str) -> ProtectedChange:
    """What an exception for a path would be for.

    The change to a protected one, nothing in particular for another.
    """
    if problem := find_scope_entry_problem(path) or find_entry_problem(
        path, (*OWN_FOLDERS, project.config.paths.worktrees)
    ):
        raise ConfigError(
            f"{escape_unprintable(path)} {problem}: no scope allows it", "nothing was recorded"
        )

    if is_protected(path, protected_paths(project)):
        return _find_change(project, package, path)
    return ProtectedChange("", "")


def allow_path(
    project: Project,
    record: RunRecord,
    package: WorkPackage,
    path: str,
    reason: str,
    by: OrderOrigin = UNKNOWN_ORIGIN,
    expected_content: str | None = None,
) -> str:
    """Record an exception; for a protected path, the change that it is for, which is returned to be
    shown.

    `seen` is the content that a person was shown before: another one is a refusal.
    """
    shown = preview_path_change(project, package, path)

    if expected_content is not None and expected_content != shown.content:
        raise StateConflict(
            f"the change to {escape_unprintable(path)} was not shown",
            "look at the change as it is now, then allow it",
        )

    exception = ScopeException(
        package=package.work_package_id, path=path, reason=reason, by=by, content=shown.content
    )
    record.append_unconditionally(
        package.feature_slug,
        project.now(),
        [NewEvent(SCOPE_ALLOWED, msgspec.json.encode(exception))],
    )

    return shown.diff


def allowed_paths(exceptions: Iterable[ScopeException], checkout: Path) -> tuple[str, ...]:
    """The exceptions that hold in a checkout now.

    A protected path only while it is as the person saw it.
    """
    return tuple(
        one.path
        for one in exceptions
        if one.content in ("", fingerprint_content(checkout, one.path))
    )


def fingerprint_content(checkout: Path, path: str) -> str:
    """What tells one content of a file from another.

    What cannot be read as a plain text file equals nothing.
    """
    place = checkout / path
    if not place.exists() and not place.is_symlink():
        return ABSENT

    try:
        file = read_text_file(place, MAX_FILE_BYTES)
    except ConfigError:
        return "unreadable"

    return hashlib.sha256(f"{file.mode & 0o111:o} {file.text}".encode()).hexdigest()


def _find_change(project: Project, package: WorkPackage, path: str) -> ProtectedChange:
    """What an agent did to a protected path, in whichever checkout of the package it did so."""
    for checkout in _package_checkouts(project, package):
        before = _read_base_text(project, checkout, path)
        content = fingerprint_content(checkout.folder, path)
        if content == ABSENT:
            after = ""
        else:
            after = read_text_file(checkout.folder / path, MAX_FILE_BYTES).text

        if after != before:
            lines = unified_diff(
                before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}"
            )
            return ProtectedChange(content, "".join(lines))

    raise ConfigError(
        f"{path} is protected, and {package.work_package_id} has not changed it",
        f"phasegate dispatch {package.work_package_id} stops when an agent has; then allow the change that you see",
    )


def _package_checkouts(project: Project, package: WorkPackage) -> Iterator[Checkout]:
    name = f"{package.feature_slug}-{package.work_package_id}"
    for found, record in list_checkouts(project.repository):
        if found.partition("-agent")[0] == name:
            index = found.removeprefix(name).removeprefix("-agent")
            assignment = Assignment(
                package.feature_slug, package.work_package_id, int(index) if index else None
            )
            yield Checkout(project.repository, assignment, record)


def _read_base_text(project: Project, checkout: Checkout, path: str) -> str:
    blob = list_blobs(project.repository, checkout.start).get(path)
    if blob:
        return read_blobs(project.repository.place(), [blob])[blob].decode(errors="replace")
    return ""
