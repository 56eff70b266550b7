"""The user's exceptions to the scope of a package.

A protected path is allowed only with the content that the user has seen.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.core.paths.scope import Scope, find_entry_problem, is_protected
from phasegate.core.paths.steering_files import PROTECTED_PATTERNS
from phasegate.core.plan.work_package import WorkPackage, find_scope_entry_problem
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
from phasegate.engine.journal.entries import SCOPE_ALLOWED, ScopeException
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.text_file import TextFile, read_text_file
from phasegate.storage.rows import NewEvent
from phasegate.workspace.checkout.checkout import Checkout, list_package_checkouts
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.repository import read_blobs
from phasegate.workspace.repository.tree_diff import list_tree_entries
from phasegate.workspace.snapshots.job_snapshot import CheckoutSnapshot

ABSENT = "absent"
MAX_FILE_BYTES = 1_000_000
# Permissions of the files of a checkout, by their mode in a tree
_FILE_MODES = {"100644": 0o644, "100755": 0o755}


class ProtectedChange(NamedTuple):
    """A change to a protected path, for the user to decide on."""

    content: str
    diff: str


def protected_paths(project: Project, feature: str) -> tuple[str, ...]:
    """Return paths that need the user's consent to be changed.

    They are shipped and configured ones, the files that a command of the configuration names, such
    as the program of a reviewer or of a notification, folders on the user's PATH, and what a link
    of the repository shows as one of them, such as `rules.md` for `CLAUDE.md -> rules.md`.
    """
    # Empty before the first work
    heads = project.refs.fetch(FeatureBranch(project, feature).name)
    entries = [
        entry.partition(b"\t")
        for head in heads.values()
        for entry in list_tree_entries(project.repository, head)
    ]
    patterns = (
        *PROTECTED_PATTERNS,
        *project.config.protect.paths,
        *_list_programs(project, [os.fsdecode(name) for _, _, name in entries]),
    )
    scope = Scope((), protected=patterns)
    links = {
        path: about.split()[2].decode()
        for about, _, name in entries
        if about.startswith(b"120000 ")
        and (scope.needs_approval(path := os.fsdecode(name)) or scope.hides_protected_path(path))
    }
    blobs = read_blobs(project.repository.place(), links.values())
    targets = (
        os.path.normpath(f"{path}/../{os.fsdecode(blobs[blob])}") for path, blob in links.items()
    )
    return (*patterns, *(f"/{glob.escape(target)}" for target in targets if target != "."))


def _list_programs(project: Project, tracked: Sequence[str]) -> Iterator[str]:
    """Yield the tracked files that commands name, and the folders with some on the user's PATH.

    Others, such as those in `.venv/bin`, are not merged.
    """
    agents = project.config.agents.values()
    commands = (project.config.notify.command, *(agent.command for agent in agents))
    files = {str(project.root / word) for command in commands for word in command}
    folders = {one for one in os.environ.get("PATH", "").split(os.pathsep) if one.startswith("/")}

    for path in sorted(files | folders):
        for form in (os.path.normpath(path), os.path.realpath(path)):
            name = os.path.relpath(form, project.root)
            if name.startswith(".."):
                continue
            is_folder = path in folders and any(one.startswith(f"{name}/") for one in tracked)
            if is_folder or name in tracked:
                yield f"/{glob.escape(name)}"


def preview_path_change(
    project: Project,
    package: WorkPackage,
    path: str,
    published: Iterable[CheckoutSnapshot] | None = None,
) -> ProtectedChange:
    """Return the change that an exception would allow; empty unless the path is protected."""
    if problem := find_scope_entry_problem(path) or find_entry_problem(
        path, (*OWN_FOLDERS, project.config.paths.worktrees)
    ):
        raise ConfigError(
            f"{escape_unprintable(path)} {problem}: no scope can allow it", "nothing was recorded"
        )

    if not is_protected(path, protected_paths(project, package.feature_slug)):
        return ProtectedChange("", "")
    if published is not None:
        return _find_published_change(project, package, path, published)
    return _find_change(project, package, path)


def allow_path(
    project: Project,
    record: RunRecord,
    package: WorkPackage,
    path: str,
    reason: str,
    by: OrderOrigin = UNKNOWN_ORIGIN,
    expected_content: str | None = None,
    published: Iterable[CheckoutSnapshot] | None = None,
) -> str:
    """Record an exception to the scope. Return the diff that it allows, if the path is protected.

    `expected_content` is the fingerprint of the content that the user has seen: any other is
    refused. `published` are the package's checkouts on another machine, if it is not worked on
    here.
    """
    change = preview_path_change(project, package, path, published)

    if expected_content is not None and expected_content != change.content:
        raise StateConflict(
            f"{escape_unprintable(path)} has changed since it was shown",
            "review the current change, then allow it",
        )

    exception = ScopeException(
        package=package.work_package_id, path=path, reason=reason, by=by, content=change.content
    )
    record.append_unconditionally(
        package.feature_slug,
        project.now(),
        [NewEvent(SCOPE_ALLOWED, msgspec.json.encode(exception))],
    )

    return change.diff


def allowed_paths(exceptions: Iterable[ScopeException], checkout: Path) -> tuple[str, ...]:
    """Return the paths whose exceptions are valid in a checkout now.

    A protected path is allowed only while its content matches what the user approved.
    """
    return tuple(
        exception.path
        for exception in exceptions
        if exception.content in ("", fingerprint_content(checkout, exception.path))
    )


def fingerprint_content(checkout: Path, path: str) -> str:
    """Return a fingerprint of a file's content and mode.

    A file that cannot be read as plain text has a fingerprint that matches no recorded one.
    """
    full_path = checkout / path
    if not full_path.exists() and not full_path.is_symlink():
        return ABSENT

    try:
        file = read_text_file(full_path, MAX_FILE_BYTES)
    except ConfigError:
        return "unreadable"

    return _fingerprint(file)


def _find_change(project: Project, package: WorkPackage, path: str) -> ProtectedChange:
    """Find the change to a protected path in any checkout of the package."""
    for checkout in list_package_checkouts(
        project.repository, package.feature_slug, package.work_package_id
    ):
        before = _read_base_text(project, checkout, path)
        content = fingerprint_content(checkout.folder, path)
        after = ""
        if content != ABSENT:
            after = read_text_file(checkout.folder / path, MAX_FILE_BYTES).text

        if after != before:
            return ProtectedChange(content, _make_diff(path, before, after))

    raise _unchanged_error(package, path)


def _find_published_change(
    project: Project, package: WorkPackage, path: str, published: Iterable[CheckoutSnapshot]
) -> ProtectedChange:
    """Find the change to a protected path in the checkouts that a worker has published."""
    for snapshot in published:
        before = _read_committed_file(project, snapshot.start, path)
        after = _read_committed_file(project, snapshot.left.commit, path)
        if after != before:
            return ProtectedChange(
                _fingerprint(after) if after else ABSENT,
                _make_diff(path, before.text if before else "", after.text if after else ""),
            )

    raise _unchanged_error(package, path)


def _read_committed_file(project: Project, commit: str, path: str) -> TextFile | None:
    """Read a file of a commit, with the permissions that a checkout gives it."""
    for entry in list_tree_entries(project.repository, commit):
        about, _, name = entry.partition(b"\t")
        mode, _, object_id = about.decode().split()
        if os.fsdecode(name) == path:
            if mode not in _FILE_MODES:
                raise ConfigError(f"{path} is not a regular file", "nothing was recorded")

            data = read_blobs(project.repository.place(), [object_id])[object_id]
            return TextFile(data.decode(), _FILE_MODES[mode])

    return None


def _fingerprint(file: TextFile) -> str:
    return hashlib.sha256(f"{file.mode & 0o111:o} {file.text}".encode()).hexdigest()


def _make_diff(path: str, before: str, after: str) -> str:
    lines = unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
    return "".join(lines)


def _unchanged_error(package: WorkPackage, path: str) -> ConfigError:
    return ConfigError(
        f"{path} is protected, and {package.work_package_id} has not changed it",
        f"phasegate dispatch {package.work_package_id} stops when an agent changes it; "
        "review that change, then allow it",
    )


def _read_base_text(project: Project, checkout: Checkout, path: str) -> str:
    blob = list_blobs(project.repository, checkout.start).get(path)
    if blob:
        return read_blobs(project.repository.place(), [blob])[blob].decode(errors="replace")
    return ""
