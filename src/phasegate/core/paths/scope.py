"""Decide which files a work package may change, and report violations.

A scope lists paths and git-style patterns. A path covers itself and everything below it; a pattern
works as in git (see `glob`). Every entry also matches the path that it spells literally:
`app/[id]/page.tsx` is a file name too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache

import msgspec

from phasegate.core.paths.glob import compile_any, compile_pattern, is_pattern
from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.core.paths.repo_path import (
    find_path_problem,
    fold_path,
    has_git_directory,
    list_path_and_parents,
)
from phasegate.core.paths.steering_files import PROTECTED_PATTERNS


def is_protected(path: str, patterns: tuple[str, ...] = PROTECTED_PATTERNS) -> bool:
    """Return True if a path configures Phasegate, an agent, CI or git.

    Case is ignored, because some file systems ignore it.
    """
    return _compile_folded(patterns).match(fold_path(path)) is not None


@cache
def _compile_folded(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return compile_any(tuple(fold_path(pattern) for pattern in patterns))


LOCK_FILES = frozenset(
    (
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "bun.lockb",
        "Cargo.lock",
        "poetry.lock",
        "uv.lock",
        "pdm.lock",
        "pylock.toml",
        "Pipfile.lock",
        "go.sum",
        "go.work.sum",
        "composer.lock",
        "Gemfile.lock",
        "mix.lock",
        "pubspec.lock",
        "Podfile.lock",
        "Package.resolved",
        "deno.lock",
        "flake.lock",
        "gradle.lockfile",
        "packages.lock.json",
    )
)
LITTER_PATTERNS = (
    "__pycache__/",
    "*.pyc",
    "node_modules/",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".coverage",
    ".venv/",
    "*.egg-info/",
    "target/",
    ".nyc_output/",
    ".turbo/",
    "*.tsbuildinfo",
    ".DS_Store",
    ".gradle/",
    ".cache/",
)

_GIT_DIRECTORY_PARTS = frozenset(("HEAD", "commondir", "objects", "refs"))


class ChangeKind(StrEnum):
    """The kind of a change, as git or the file system reports it."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    # Outside of the worktree
    OUTSIDE = "outside"
    GIT_DIRECTORY = "git-directory"


class FileMode(StrEnum):
    """File modes as git writes them."""

    FILE = "100644"
    EXECUTABLE = "100755"
    SYMLINK = "120000"
    SUBMODULE = "160000"


class FileChange(msgspec.Struct, frozen=True):
    """One observed change.

    The modes identify links and submodules for every kind of change; "" means that there is no
    file.
    """

    kind: ChangeKind
    path: str
    mode: str = FileMode.FILE.value
    old_mode: str = ""
    old_path: str | None = None
    link_target: str | None = None


class ScopeRule(StrEnum):
    """The rule that a change breaks."""

    OUT_OF_SCOPE = "out-of-scope"
    OUTSIDE_WORKTREE = "outside-worktree"
    GIT_DIRECTORY = "git-directory"
    UNSAFE_PATH = "unsafe-path"
    NAME_COLLISION = "twin"
    MODE = "mode"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"
    PROTECTED = "protected"


class Violation(msgspec.Struct, frozen=True, order=True):
    """A change that blocks the package; `old_path` is set for a rename."""

    path: str
    rule: ScopeRule
    detail: str
    old_path: str | None = None


class Scope:
    """The files that a package may change.

    A user recorded `exceptions`; Phasegate itself wrote the files in `set_aside`.

    A path that `protected` matches needs an exception for exactly that path, whatever the entries
    say.
    """

    def __init__(
        self,
        entries: Iterable[str],
        *,
        executable: Iterable[str] = (),
        exceptions: Iterable[str] = (),
        set_aside: Iterable[str] = (),
        lock_files: Iterable[str] = LOCK_FILES,
        litter: Iterable[str] = LITTER_PATTERNS,
        own_folders: Iterable[str] = OWN_FOLDERS,
        protected: Iterable[str] = (),
    ) -> None:
        self._exceptions = frozenset(exceptions)
        self._protected = tuple(protected)
        self.entries = (*entries, *self._exceptions)
        self.executable = frozenset(executable)
        self.set_aside = frozenset(set_aside)
        self.lock_files = frozenset(lock_files)
        self._paths = frozenset(entry for entry in self.entries if not entry.endswith("/"))
        self._folders = frozenset(
            folder for entry in self.entries if (folder := _get_covered_folder(entry))
        )
        self._patterns = [
            entry for entry in self.entries if is_pattern(entry) and not _get_covered_folder(entry)
        ]
        self.litter = tuple(litter)
        self._listed = self._paths | self._folders
        self._entry_by_folded_name = {fold_path(entry): entry for entry in self._listed}
        self._own_folders = frozenset(fold_path(folder.rstrip("/")) for folder in own_folders)

    def covers(self, path: str) -> bool:
        """Return True if a path is listed, in exactly this spelling.

        An unsafe path, or one in Phasegate's own folders, is never covered.
        """
        if (
            find_path_problem(path) is not None
            or self.is_in_own_folder(path)
            or self.find_name_collision(path)
        ):
            return False

        if self.needs_approval(path):
            return False

        own, *above = list_path_and_parents(path)
        if (
            own in self._paths
            or not self._paths.isdisjoint(above)
            or not self._folders.isdisjoint(above)
        ):
            return True

        return any(compile_pattern(pattern).match(path) for pattern in self._patterns)

    def is_lock_file(self, path: str) -> bool:
        """Return True for a lock file: the seed allows its change, but the reviewer is shown it."""
        has_lock_name = path.rpartition("/")[2] in self.lock_files
        return has_lock_name and find_path_problem(path) is None and not self.is_in_own_folder(path)

    def is_in_own_folder(self, path: str) -> bool:
        """Return True if a merged path would be in Phasegate's records, caches or checkouts."""
        return not self._own_folders.isdisjoint(list_path_and_parents(fold_path(path)))

    def needs_approval(self, path: str) -> bool:
        """Return True if a path is protected and no exception allows its change."""
        return path not in self._exceptions and is_protected(path, self._protected)

    def hides_protected_path(self, path: str) -> bool:
        """Return True if a link at this path would show files of another folder as protected ones.

        For example a link `.claude` to an ordinary folder with a `settings.json`.
        """
        if path in self._exceptions:
            return False
        return is_protected(f"{path}/x", self._protected) or any(
            fold_path(pattern).lstrip("/").startswith(f"{fold_path(path)}/")
            for pattern in self._protected
        )

    def is_litter(self, path: str) -> bool:
        """Return True for leftovers of tools and Phasegate's own files, which are never collected
        or checked.

        A file that is listed by its exact name is never litter.
        """
        if path in self.set_aside:
            return True
        if path in self._paths or self.needs_approval(path):
            return False
        return compile_any(self.litter).match(path) is not None

    def find_name_collision(self, path: str) -> str | None:
        """Return the listed path that differs from this one only in case or Unicode form."""
        for name in list_path_and_parents(path):
            if name in self._listed:
                return None
            if (entry := self._entry_by_folded_name.get(fold_path(name))) is not None:
                return entry

        return None


def _get_covered_folder(entry: str) -> str:
    """Return the folder that an entry covers completely, as `src/` and `src/**` do.

    Return an empty text for any other entry.
    """
    if entry.endswith("/**"):
        folder = entry.removesuffix("**")
    else:
        folder = entry

    if is_pattern(folder) or not folder.endswith("/"):
        return ""
    return folder[:-1]


def find_entry_problem(entry: str, own_folders: Iterable[str] = OWN_FOLDERS) -> str | None:
    """Return why an entry can never allow anything, or None if it can."""
    if Scope((), own_folders=own_folders).is_in_own_folder(entry.rstrip("/")):
        return "is in one of Phasegate's own folders"
    if entry == ".gitmodules":
        return "configures submodules, which may not be added, changed or removed"
    return None


def find_violations(
    changes: Sequence[FileChange], scope: Scope, tracked: Iterable[str] = ()
) -> list[Violation]:
    """Return every violation in a list of changes, sorted by path.

    An empty list means that all changes may be collected.

    `tracked` has the paths of the base tree. An added file whose name differs from one of them, or
    from another added file, only in case or Unicode form would overwrite it on some file systems.
    """
    violations = {
        violation for change in changes for violation in _find_change_violations(change, scope)
    }
    violations.update(_find_name_collisions(changes, scope, tracked))
    violations.update(_find_bare_repository_parts(changes, scope, tracked))

    return sorted(
        violations, key=lambda violation: (violation.path, violation.rule, violation.detail)
    )


def list_changed_lock_files(changes: Iterable[FileChange], scope: Scope) -> list[str]:
    """List the changed lock files, for the reviewer."""
    paths = {path for change in changes for path in _list_changed_paths(change)}
    return sorted(path for path in paths if scope.is_lock_file(path))


def _list_changed_paths(change: FileChange) -> tuple[str, ...]:
    if change.old_path is None:
        return (change.path,)
    return (change.old_path, change.path)


def _find_change_violations(change: FileChange, scope: Scope) -> Iterator[Violation]:
    """Yield the rules of the scope that one change breaks."""
    if change.kind is ChangeKind.OUTSIDE:
        yield Violation(change.path, ScopeRule.OUTSIDE_WORKTREE, "changed outside the worktree")
    elif change.kind is ChangeKind.GIT_DIRECTORY or any(
        has_git_directory(path) for path in _list_changed_paths(change)
    ):
        yield Violation(
            change.path, ScopeRule.GIT_DIRECTORY, "agents may not change the git directory"
        )
    else:
        wrong = [path for path in _list_changed_paths(change) if _is_forbidden(path, scope)]
        if wrong:
            yield _make_path_violation(change, wrong[0], scope)
        if not scope.is_litter(change.path):
            yield from _find_mode_violations(change, scope)


def _is_forbidden(path: str, scope: Scope) -> bool:
    return not (scope.is_litter(path) or scope.covers(path) or scope.is_lock_file(path))


def _make_path_violation(change: FileChange, wrong: str, scope: Scope) -> Violation:
    """Describe the violation of a forbidden path; a rename names both paths."""
    problem = find_path_problem(wrong)
    listed = scope.find_name_collision(wrong)

    if problem is not None:
        rule = ScopeRule.UNSAFE_PATH
        detail = problem
    elif scope.is_in_own_folder(wrong):
        rule = ScopeRule.OUT_OF_SCOPE
        detail = f"{change.kind.value}, but that folder belongs to Phasegate"
    elif scope.needs_approval(wrong):
        rule = ScopeRule.PROTECTED
        detail = f"{change.kind.value}, but it is protected: a reviewer must allow the change"
    elif listed is not None:
        rule = ScopeRule.NAME_COLLISION
        detail = f"differs from the listed {listed} only in case or Unicode form"
    else:
        rule = ScopeRule.OUT_OF_SCOPE
        detail = f"{change.kind.value}, but not in the file scope"

    if change.old_path is not None:
        detail += f" (renamed from {change.old_path} to {change.path})"

    return Violation(change.path, rule, detail, change.old_path)


def _find_mode_violations(change: FileChange, scope: Scope) -> Iterator[Violation]:
    """Allow only regular files, declared executables and links that stay in the tree."""
    if FileMode.SUBMODULE in (change.mode, change.old_mode) or change.path == ".gitmodules":
        yield Violation(
            change.path, ScopeRule.SUBMODULE, "submodules may not be added, changed or removed"
        )
    elif change.kind is ChangeKind.DELETED:
        return
    elif change.mode == FileMode.SYMLINK:
        problem = find_link_problem(change.path, change.link_target)
        if scope.hides_protected_path(change.path):
            yield Violation(
                change.path,
                ScopeRule.PROTECTED,
                "is a link in the place of a protected folder: a reviewer must allow it",
            )
        if problem is not None:
            yield Violation(change.path, ScopeRule.SYMLINK, problem)
    elif change.mode == FileMode.EXECUTABLE:
        if change.old_mode != FileMode.EXECUTABLE and change.path not in scope.executable:
            yield Violation(
                change.path,
                ScopeRule.MODE,
                "made executable without being declared in executable_files",
            )
    elif change.mode != FileMode.FILE:
        yield Violation(change.path, ScopeRule.MODE, f"mode {change.mode} is not allowed")


def find_link_problem(path: str, target: str | None) -> str | None:
    """Return why a symbolic link may lead out of the tree, or None if it cannot.

    `..` is resolved only at the beginning of a target: after another part it could pass through a
    link.
    """
    if not target:
        return "is a link to an unknown target"

    if target != "/":
        parts = target.removeprefix("./").rstrip("/").split("/")
    else:
        parts = [target]

    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    if ups > path.count("/"):
        return "is a link out of the worktree"

    rest = "/".join(parts[ups:])
    if rest and (problem := find_path_problem(rest)):
        return f"is a link whose target {problem}"

    return None


def _find_name_collisions(
    changes: Sequence[FileChange], scope: Scope, tracked: Iterable[str]
) -> Iterator[Violation]:
    """Yield added paths that fold to the same name as another remaining path."""
    arriving = (ChangeKind.ADDED, ChangeKind.RENAMED)
    leaving = (ChangeKind.DELETED, ChangeKind.RENAMED)
    added = {
        change.path
        for change in changes
        if change.kind in arriving and not scope.is_litter(change.path)
    }
    if not added:
        return

    gone = {_list_changed_paths(change)[0] for change in changes if change.kind in leaving}
    wanted = {fold_path(path) for path in added}
    by_name: dict[str, set[str]] = {}
    for path in added.union(path for path in tracked if path not in gone):
        if (name := fold_path(path)) in wanted:
            by_name.setdefault(name, set()).add(path)

    for path in added:
        for other in by_name[fold_path(path)] - {path}:
            yield Violation(
                path, ScopeRule.NAME_COLLISION, f"differs from {other} only in case or Unicode form"
            )


def _find_bare_repository_parts(
    changes: Sequence[FileChange], scope: Scope, tracked: Iterable[str]
) -> Iterator[Violation]:
    """Yield added paths that turn a folder into a bare repository.

    Git treats a folder with a `HEAD` as a repository, and uses its settings.

    A `HEAD` without the other parts counts too, because another package could add the rest.
    """
    arriving = sorted(
        change.path for change in changes if change.kind in (ChangeKind.ADDED, ChangeKind.RENAMED)
    )
    parts = {
        part: path
        for path in arriving
        for part in _list_git_parts(path)
        if not scope.is_litter(path)
    }

    if not parts:
        return

    heads = {path for path in (*arriving, *tracked) if path.endswith("/HEAD")}
    for part, path in parts.items():
        if f"{part.rpartition('/')[0]}/HEAD" in heads:
            detail = "git would treat its folder as a repository, and run what that configures"
            yield Violation(path, ScopeRule.GIT_DIRECTORY, detail)


def _list_git_parts(path: str) -> list[str]:
    """List the path and its parents below the root that are named like parts of a git directory."""
    return [
        name
        for name in list_path_and_parents(path)
        if name.rpartition("/")[2] in _GIT_DIRECTORY_PARTS and "/" in name
    ]
