"""Cache the setup results of trees that no agent wrote.

Every checkout that is derived from such a tree can use its result. A setup runs code from its tree,
and its result could contain anything. Therefore an agent's tree never fills the cache. The key
covers the inputs of the setup, the candidates and the machine. A virtual environment contains the
path of its checkout: an entry lists the files with that path, and they are rewritten for the
checkout that the entry is copied into.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import msgspec

from phasegate.checks.plan import CommandPlan
from phasegate.checks.snapshot import TreeSnapshot, take_snapshot
from phasegate.core.detection.files import MANIFESTS, is_requirements_file
from phasegate.core.paths.repo_path import list_path_and_parents
from phasegate.typed import read_json

MAX_CACHE_ENTRIES = 8
_PROSE_SUFFIXES = (".md", ".rst", ".adoc", ".po", ".pot")
_PROSE_NAMES = ("README", "CHANGELOG", "CHANGES", "LICENSE", "LICENCE", "COPYING", "AUTHORS")
_METADATA_FILE = "about.json"
_FILES_FOLDER = "files"
_MAX_REWRITTEN_BYTES = 4_000_000
_WORD = re.compile(r"[^\s;&|()<>'\"`=]+")
_ROOT_SCRIPTS = (
    ".py",
    ".js",
    ".cjs",
    ".mjs",
    ".ts",
    ".json",
    ".toml",
    ".cfg",
    ".ini",
    ".yaml",
    ".yml",
    ".lock",
    ".sh",
)


class CachedSetup(msgspec.Struct, frozen=True):
    """A cached setup: the command that was chosen, and the checkout whose path its files have."""

    # The setup that was chosen
    run: str
    summary: str
    # The checkout in which it was created
    checkout: str
    # Files that contain that path
    rewritten: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    duration_s: float = 0.0
    size_bytes: int = 0


def make_cache_key(inputs: str, plan: CommandPlan) -> str:
    """Return the cache key of a setup: a hash of its inputs, the candidates and the machine."""
    parts = (
        inputs,
        msgspec.json.encode([plan.setups, plan.commands.get("setup", "")]).hex(),
        sys.platform,
        os.uname().machine,
    )

    digest = sha256()
    for part in (*parts, os.environ.get("PATH", "")):
        digest.update(b"%d:%s" % (len(os.fsencode(part)), os.fsencode(part)))

    return digest.hexdigest()


def is_prose(path: str) -> bool:
    """Return True for a file that people read: no setup depends on its text."""
    name = path.rpartition("/")[2]
    return name.endswith(_PROSE_SUFFIXES) or name.partition(".")[0] in _PROSE_NAMES


def is_setup_input(path: str, plan: CommandPlan) -> bool:
    """Return True if a change of this file can affect the setup, judging by the file's name."""
    lines = [plan.commands.get("setup", ""), *(candidate.command for candidate in plan.setups)]
    if path in {word.removeprefix("./") for line in lines for word in _WORD.findall(line)}:
        return True
    if is_prose(path):
        return False
    if any(candidate.compiles_sources for candidate in plan.setups):
        return True

    name = path.rpartition("/")[2]
    if name in MANIFESTS or name in plan.lock_files or is_requirements_file(name):
        return True
    return "/" not in path and path.endswith(_ROOT_SCRIPTS)


class SetupCache:
    """A folder of setup results. Each entry is created atomically.

    When the results need more than `max_bytes`, the least recently used ones are removed. The
    newest one is kept: without it, every check would run the setup again.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def find_entry(self, key: str) -> CachedSetup | None:
        try:
            return read_json((self._folder / key / _METADATA_FILE).read_bytes(), CachedSetup)
        except (OSError, msgspec.DecodeError):
            return None

    def restore(self, key: str, checkout: Path) -> CachedSetup | None:
        """Copy a cached result into a checkout and return its metadata.

        Return None if the cache has no result for the key, or if one of the result's paths already
        exists in the checkout.
        """
        laid = self.copy_into(key, checkout, checkout)
        if laid:
            return laid[0]
        return None

    def copy_into(
        self, key: str, checkout: Path, final_checkout: Path
    ) -> tuple[CachedSetup, tuple[str, ...]] | None:
        """Copy a cached result into a checkout that will later be moved to `final_checkout`.

        Return the result's metadata and the topmost paths that were created.

        Files are copied, not linked, so that changes do not affect the cache. Only paths that do
        not exist yet are created: an existing path may be a link to anywhere.
        """
        about = self.find_entry(key)
        kept = self._folder / key / _FILES_FOLDER
        if about is None or not kept.is_dir():
            return None

        pairs = [*_plan_copies(kept, checkout)]
        if any(os.path.lexists(target) for _, target in pairs):
            return None

        for source, target in pairs:
            _copy_path(source, target)

        for path in about.rewritten:
            _replace_path_in_file(checkout / path, about.checkout, str(final_checkout))

        # Mark the entry as recently used: the oldest entries are evicted first
        os.utime(self._folder / key)
        return about, tuple(str(target.relative_to(checkout)) for _, target in pairs)

    def store_entry(
        self, key: str, checkout: Path, initial_files: TreeSnapshot, about: CachedSetup
    ) -> None:
        """Store the files that a setup added to a checkout since `initial_files`."""
        draft = self._folder / f".{uuid4().hex}"
        (draft / _FILES_FOLDER).mkdir(parents=True)

        try:
            added = find_topmost_added(initial_files, take_snapshot(checkout))
            for path in added:
                _copy_path(checkout / path, draft / _FILES_FOLDER / path)

            holding = tuple(_find_files_containing(draft / _FILES_FOLDER, str(checkout)))
            whole = msgspec.structs.replace(
                about,
                checkout=str(checkout),
                rewritten=holding,
                size_bytes=_measure_folder(draft / _FILES_FOLDER),
            )
            (draft / _METADATA_FILE).write_bytes(msgspec.json.encode(whole))
            draft.rename(self._folder / key)
        except OSError:
            # The disk is full, or another run stored the entry first; the cache is optional
            shutil.rmtree(draft, ignore_errors=True)

        self._evict_oldest()

    def _evict_oldest(self) -> None:
        entries = [entry for entry in self._folder.iterdir() if not entry.name.startswith(".")]
        entries.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
        used_bytes = 0

        for number, entry in enumerate(entries):
            about = self.find_entry(entry.name)
            used_bytes += about.size_bytes if about else 0
            if number and (number >= MAX_CACHE_ENTRIES or used_bytes > self._max_bytes):
                shutil.rmtree(entry, ignore_errors=True)


def find_programs(
    checkout: Path, made: Iterable[str], bin_folders: Iterable[str]
) -> tuple[str, ...]:
    """Return the programs among the paths that a setup created, ordered by `bin_folders`.

    Nested folders such as `web/node_modules` are included.
    """
    found: dict[str, str] = {}

    for bin_folder in bin_folders:
        top, _, below = bin_folder.partition("/")
        for path in (path for path in made if path == top or path.endswith(f"/{top}")):
            folder = checkout / path / below
            for file in sorted(folder.iterdir()) if folder.is_dir() else ():
                if os.access(file, os.X_OK) and file.is_file():
                    found.setdefault(file.name, str(file.relative_to(checkout)))

    return tuple(found.values())


def _measure_folder(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - many files
        for root, _, names in os.walk(folder)
        for name in names
    )


def _find_files_containing(folder: Path, path: str) -> Iterator[str]:
    """Yield the text files below a folder that contain a path.

    Byte code is skipped: the path in it is only informational.
    """
    wanted = os.fsencode(path)

    for root, _, names in os.walk(folder):
        for name in names:
            file = Path(root) / name
            if (
                name.endswith((".pyc", ".so", ".node"))
                or file.is_symlink()
                or file.stat().st_size > _MAX_REWRITTEN_BYTES
            ):
                continue

            data = file.read_bytes()
            if wanted in data and b"\0" not in data[:1024]:
                yield str(file.relative_to(folder))


def _replace_path_in_file(file: Path, old: str, new: str) -> None:
    if file.is_symlink() or not file.is_file():
        return
    mode = file.stat().st_mode
    file.chmod(mode | 0o200)
    file.write_bytes(file.read_bytes().replace(os.fsencode(old), os.fsencode(new)))
    file.chmod(mode)


def find_topmost_added(before: TreeSnapshot, after: Iterable[str]) -> list[str]:
    """Return the new paths, without those inside a folder that is itself new."""
    known = {"", *(parent for path in before for parent in list_path_and_parents(path)[1:])}
    return sorted({_find_topmost_new(path, known) for path in after if path not in before})


def remove_added_files(checkout: Path, before: TreeSnapshot) -> None:
    """Remove the files that a failed setup added, before the next candidate is tried."""
    for path in find_topmost_added(before, take_snapshot(checkout)):
        if _is_folder(checkout / path):
            shutil.rmtree(checkout / path, ignore_errors=True)
        else:
            (checkout / path).unlink(missing_ok=True)


def _find_topmost_new(path: str, known: set[str]) -> str:
    new = [folder for folder in list_path_and_parents(path)[1:] if folder not in known]
    return new[-1] if new else path


def _plan_copies(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Yield pairs of source and target paths to copy.

    Folders that exist on both sides are merged; links are not followed.
    """
    for child in source.iterdir():
        there = target / child.name
        if _is_folder(child) and _is_folder(there):
            yield from _plan_copies(child, there)
        else:
            yield child, there


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _copy_path(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if _is_folder(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
