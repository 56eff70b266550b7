"""Scan a checkout once for files that are new, changed or missing since it was created.

Unchanged files cost one `lstat` each. A file counts as unchanged only if its times are older than
the end of the checkout's creation: otherwise an edit in the same clock tick could go unnoticed, the
problem that git calls racy.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from phasegate.core.paths.repo_path import has_git_directory
from phasegate.files.safe_open import folder_descriptor
from phasegate.workspace.repository.disk_files import (
    OTHER_DEVICE,
    UNREADABLE,
    CheckoutLimits,
    DiskEntry,
    LimitReached,
    inspect_path,
    list_names,
)
from phasegate.workspace.repository.ignore import IgnoreRules
from phasegate.workspace.repository.index_file import (
    LOW_32_BITS,
    FileStat,
    IndexSnapshot,
    to_index_entry,
)

SUBMODULE_MODE = 0o160000
_NO_FILES: dict[str, FileStat] = {}


class CheckoutStart(NamedTuple):
    """The initial state of a checkout, and the paths in it that Phasegate owns."""

    snapshot: IndexSnapshot
    # Time of the checkout's file system after the last file was written
    stamp_ns: int
    hash_name: str
    # Phasegate's own paths, which are not scanned
    set_aside: frozenset[str] = frozenset()


class CheckoutScanResult(NamedTuple):
    """The differences that a scan found. `ignored` has the topmost ignored paths."""

    found: dict[str, DiskEntry]
    missing: list[str]
    ignored: list[str]


def scan_checkout(
    root: int, start: CheckoutStart, ignore_rules: Callable[[], IgnoreRules], limits: CheckoutLimits
) -> CheckoutScanResult:
    """Return everything that differs from the start, with content ids. Raise LimitReached."""
    walk = _ChangeScan(root, start, limits, ignore_rules)
    walk.visit_folder(root, "", 0)
    return CheckoutScanResult(walk.found, walk.list_missing(), walk.ignored)


class CleanupPlan(NamedTuple):
    """The paths to remove, and those to write, to restore the initial state of a checkout.

    New and changed paths are removed, whether they are ignored or not.
    """

    dirty: list[str]
    missing: list[str]


def plan_cleanup(root: int, start: CheckoutStart) -> CleanupPlan:
    """Return everything that differs from the initial state, without reading file contents."""
    walk = _CleanupScan(root, start, CheckoutLimits())
    walk.visit_folder(root, "", 0)
    tracked = [path for path in walk.dirty if start.snapshot.get(path) is not None]
    return CleanupPlan(walk.dirty, sorted({*walk.list_missing(), *tracked}))


class _CheckoutWalk(ABC):
    """Walks through the folders of a checkout; subclasses handle each difference."""

    def __init__(self, root: int, start: CheckoutStart, limits: CheckoutLimits) -> None:
        self._start = start
        self._limits = limits
        self._device = os.fstat(root).st_dev
        self._visited: set[str] = set()
        # Folders that could not be opened: their content is unknown
        self._unreadable_folders: list[str] = []
        self._missing: list[str] = []

    def visit_folder(self, descriptor: int, folder: str, depth: int) -> None:
        """Compare one folder with its initial state, and descend into its subfolders."""
        if depth > self._limits.depth and folder not in self._start.snapshot.parents:
            raise LimitReached("folders inside folders", self._limits.depth)

        self._visited.add(folder)
        known = self._start.snapshot.folders.get(folder, _NO_FILES)
        prefix = f"{folder}/" if folder else ""
        # `unknown`: all that is not a tracked file, including folders with tracked files
        unknown, seen = self._scan_files(descriptor, known, prefix)
        if seen < len(known):
            self._missing.extend(
                prefix + name for name in known.keys() - set(list_names(descriptor))
            )

        for name, is_folder in unknown:
            if not self._is_own_path(prefix + name) and (folder or name != ".git"):
                self._visit_unknown(descriptor, name, prefix + name, is_folder, depth)

    def _is_own_path(self, path: str) -> bool:
        """Return True if a path belongs to Phasegate.

        A folder that is in the commit belongs to the project, whatever its name.
        """
        return path in self._start.set_aside and path not in self._start.snapshot.parents

    def _scan_files(
        self, descriptor: int, known: dict[str, FileStat], prefix: str
    ) -> tuple[list[tuple[str, bool]], int]:
        """Scan one folder. Return its untracked names, and the number of tracked ones.

        This is the hot loop: listing names and calling `stat` on each is a fifth faster than
        `scandir`, which creates an object per entry.
        """
        stamp_ns = self._start.stamp_ns
        get = known.get
        look_at = os.stat
        unknown: list[tuple[str, bool]] = []
        seen = 0

        for name in list_names(descriptor):
            was = get(name)
            try:
                about = look_at(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                # A process that is still active removed the file
                continue

            if was is None:
                unknown.append((name, stat.S_ISDIR(about.st_mode)))
                continue

            seen += 1
            if (
                about.st_ctime_ns == was[0] < stamp_ns
                and about.st_mtime_ns == was[1] < stamp_ns
                and about.st_ino & LOW_32_BITS == was[2]
                and about.st_size & LOW_32_BITS == was[3]
            ):
                continue

            if not stat.S_ISDIR(about.st_mode):
                self._on_changed(descriptor, name, prefix + name, about, was)
            elif was[4] == SUBMODULE_MODE:
                self._on_submodule(descriptor, name, prefix + name)
            else:
                self._missing.append(prefix + name)
                unknown.append((name, True))

        return unknown, seen

    def _visit_unknown(
        self, descriptor: int, name: str, path: str, is_folder: bool, depth: int
    ) -> None:
        if is_folder and path in self._start.snapshot.parents:
            self._descend(descriptor, name, path, depth)
        else:
            self._on_extra(descriptor, name, path, is_folder, depth)

    def _descend(self, descriptor: int, name: str, path: str, depth: int) -> None:
        try:
            with folder_descriptor(name, descriptor) as below:
                if os.fstat(below).st_dev == self._device:
                    self.visit_folder(below, path, depth + 1)
                else:
                    self._on_unreadable_folder(path, OTHER_DEVICE)
        except PermissionError:
            self._on_unreadable_folder(path, UNREADABLE)

    def list_missing(self) -> list[str]:
        """Return the tracked files that are missing, except in folders that could not be opened."""
        folders = self._start.snapshot.folders
        gone = [
            f"{folder}/{name}"
            for folder in folders.keys() - self._visited
            for name in folders[folder]
        ]
        closed = tuple(f"{path}/" for path in self._unreadable_folders)

        return sorted(
            path for path in (*self._missing, *gone) if not (closed and path.startswith(closed))
        )

    def _on_unreadable_folder(self, path: str, why: str) -> None:
        self._unreadable_folders.append(path)

    @abstractmethod
    def _on_changed(
        self, descriptor: int, name: str, path: str, about: os.stat_result, was: FileStat
    ) -> None:
        """Handle a tracked file that changed."""

    @abstractmethod
    def _on_submodule(self, descriptor: int, name: str, path: str) -> None:
        """Handle the folder of a submodule that was changed, or filled by Phasegate."""

    @abstractmethod
    def _on_extra(self, descriptor: int, name: str, path: str, is_folder: bool, depth: int) -> None:
        """Handle a path that is new."""


class _ChangeScan(_CheckoutWalk):
    """Collects the changed paths, with the content ids of their files."""

    def __init__(
        self,
        root: int,
        start: CheckoutStart,
        limits: CheckoutLimits,
        ignore_rules: Callable[[], IgnoreRules],
    ) -> None:
        super().__init__(root, start, limits)
        self.found: dict[str, DiskEntry] = {}
        self.ignored: list[str] = []
        self._ignore_rules = ignore_rules
        self._rules: IgnoreRules | None = None
        self._bytes = 0

    def _on_changed(
        self, descriptor: int, name: str, path: str, about: os.stat_result, was: FileStat
    ) -> None:
        # A tracked file may have exceeded the limit from the start
        known = self._limits._replace(file_bytes=max(self._limits.file_bytes, was[3]))
        now = self._inspect(descriptor, name, about, known)
        if (now.mode, now.object_id) != to_index_entry(was):
            self._add_found(path, now)

    def _on_extra(self, descriptor: int, name: str, path: str, is_folder: bool, depth: int) -> None:
        """Handle a path that git does not track: ignored, new, repository or folder."""
        if has_git_directory(name):
            self._add_found(path, DiskEntry(_read_mode(descriptor, name)))
        elif self._is_ignored(path, is_folder):
            self.ignored.append(path)
        elif not is_folder:
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            self._add_found(path, self._inspect(descriptor, name, about, self._limits))
        elif _is_repository(descriptor, name):
            self._add_found(path, DiskEntry("160000"))
        else:
            self._descend(descriptor, name, path, depth)

    def _on_submodule(self, descriptor: int, name: str, path: str) -> None:
        """Ignore a submodule that git or Phasegate filled; report anything else in its folder."""
        names = _list_names_below(descriptor, name)
        # Phasegate filled it
        if path in self._start.set_aside:
            return

        if names is None or any(has_git_directory(inside) for inside in names):
            self.ignored.append(path)
        elif names:
            self._add_found(path, DiskEntry(f"{SUBMODULE_MODE:06o}"))

    def _inspect(
        self, descriptor: int, name: str, about: os.stat_result, limits: CheckoutLimits
    ) -> DiskEntry:
        if about.st_dev != self._device:
            return DiskEntry(OTHER_DEVICE)
        return inspect_path(descriptor, name, about, self._start.hash_name, limits)

    def _add_found(self, path: str, found: DiskEntry) -> None:
        self.found[path] = found
        self._bytes += found.size
        if self._bytes > self._limits.total_bytes:
            raise LimitReached("changed files together, in bytes", self._limits.total_bytes)
        if len(self.found) > self._limits.files:
            raise LimitReached("new or changed files", self._limits.files)

    def _is_ignored(self, path: str, is_folder: bool) -> bool:
        if self._rules is None:
            self._rules = self._ignore_rules()
        return self._rules.is_ignored(path, is_folder)

    def _on_unreadable_folder(self, path: str, why: str) -> None:
        super()._on_unreadable_folder(path, why)
        self._add_found(path, DiskEntry(why))


class _CleanupScan(_CheckoutWalk):
    """Collects the changed paths without reading files."""

    def __init__(self, root: int, start: CheckoutStart, limits: CheckoutLimits) -> None:
        super().__init__(root, start, limits)
        self.dirty: list[str] = []

    def _on_changed(
        self, descriptor: int, name: str, path: str, about: os.stat_result, was: FileStat
    ) -> None:
        self.dirty.append(path)

    def _on_extra(self, descriptor: int, name: str, path: str, is_folder: bool, depth: int) -> None:
        self.dirty.append(path)

    def _on_submodule(self, descriptor: int, name: str, path: str) -> None:
        if _list_names_below(descriptor, name) != set():
            self.dirty.append(path)

    def _on_unreadable_folder(self, path: str, why: str) -> None:
        self.dirty.append(path)


def _is_repository(descriptor: int, name: str) -> bool:
    """Return True if a folder is a repository.

    This includes a bare repository, which git would use if it was run inside the folder.
    """
    names = _list_names_below(descriptor, name) or set()
    is_bare = "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names)
    return is_bare or any(has_git_directory(inside) for inside in names)


def _list_names_below(descriptor: int, name: str) -> set[str] | None:
    try:
        with folder_descriptor(name, descriptor) as folder:
            return set(list_names(folder))
    except OSError:
        return None


def _read_mode(descriptor: int, name: str) -> str:
    return f"{os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode:06o}"
