"""The versions of each path of a package: at the start, on the branch, and on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from phasegate.workspace.changes.agent_history import AgentCommit
from phasegate.workspace.changes.changes import Observation
from phasegate.workspace.checkout.agent_git_reader import copy_agent_objects
from phasegate.workspace.checkout.checkout import Checkout, CheckoutRecord, checkout_descriptor
from phasegate.workspace.repository.disk_files import (
    CheckoutLimits,
    DiskEntry,
    read_unchanged_content,
)
from phasegate.workspace.repository.index_file import IndexSnapshot
from phasegate.workspace.repository.objects import PathVersion, VersionMap
from phasegate.workspace.repository.repository import Repository, read_blobs, temporary_folder
from phasegate.workspace.repository.tree_diff import diff_trees

HARVESTABLE_MODES = frozenset(("100644", "100755", "120000"))


class PathVersions:
    """The versions of each path: at the start, at the last harvest, on the branch, and on disk."""

    def __init__(
        self, repository: Repository, record: CheckoutRecord, head: str, observation: Observation
    ) -> None:
        last = record.tip or record.start
        place = repository.place()
        self._tracked: IndexSnapshot = observation.tracked_files
        self._seen = observation.versions
        if last != record.start:
            self.harvested_before = collect_new_versions(diff_trees(place, record.start, last))
        else:
            self.harvested_before = {}

        self._own_paths = frozenset(record.paths)
        if last != head and record.joins is None:
            self.changed_since_harvest = collect_new_versions(diff_trees(place, last, head))
        else:
            self.changed_since_harvest = {}

    def at_start(self, path: str) -> PathVersion | None:
        entry = self._tracked.get(path)
        if entry is None:
            return None
        return PathVersion(entry.mode, entry.object_id)

    def at_last_harvest(self, path: str) -> PathVersion | None:
        if path in self.harvested_before:
            return self.harvested_before[path]
        return self.at_start(path)

    def at_head(self, path: str) -> PathVersion | None:
        if path in self.changed_since_harvest:
            return self.changed_since_harvest[path]
        return self.at_last_harvest(path)

    def on_disk(self, path: str) -> PathVersion | None:
        if path not in self._seen:
            return self.at_start(path)
        found = self._seen[path]
        if found is None:
            return None
        return PathVersion(found.mode, found.object_id)

    def required_changes(self, allowed: Callable[[str], bool]) -> VersionMap:
        """Return the final versions of the allowed paths that differ from the last harvest."""
        undone = (
            path
            for path in self.harvested_before
            if path in self._own_paths and path not in self._seen
        )
        paths = [path for path in (*self._seen, *undone) if allowed(path)]
        usable = {
            path: self.on_disk(path) for path in paths if is_harvestable(self._seen.get(path))
        }

        return {
            path: version
            for path, version in usable.items()
            if version != self.at_last_harvest(path)
        }


def collect_new_versions(
    changes: Iterable[tuple[str, PathVersion | None, PathVersion | None]],
) -> VersionMap:
    return {path: new for path, _, new in changes}


def is_harvestable(found: DiskEntry | None) -> bool:
    return found is None or (found.mode in HARVESTABLE_MODES and bool(found.object_id))


def read_observed_contents(
    checkout: Checkout, observation: Observation, paths: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of these paths, as far as they can be harvested.

    Raise an error if a file changed after the scan.
    """
    with checkout_descriptor(checkout.record) as root:
        for path in paths:
            found = observation.versions[path]
            if found is not None and is_harvestable(found):
                yield path, read_unchanged_content(root, path, found, checkout.repository.hash_name)


def read_committed_blobs(
    checkout: Checkout,
    commits: Iterable[AgentCommit],
    allowed: Callable[[str], bool],
    limits: CheckoutLimits,
) -> dict[str, tuple[str, bytes]]:
    """Return path and content of the blobs at allowed paths in an agent's commits, by blob id."""
    changes = [change for commit in commits for change in commit.changes if allowed(change.path)]
    paths = {
        one.new.object_id: one.path
        for one in changes
        if one.new is not None and one.new.mode in HARVESTABLE_MODES
    }
    if not paths:
        return {}

    with (
        checkout_descriptor(checkout.record) as root,
        temporary_folder(checkout.repository) as room,
    ):
        place = copy_agent_objects(root, checkout.repository, room / "objects", limits)
        return {blob: (paths[blob], content) for blob, content in read_blobs(place, paths).items()}


def find_remaining_changes(
    states: PathVersions,
    wanted: VersionMap,
    now: VersionMap,
) -> VersionMap:
    """Return the changes that are still missing after the agent's own commits.

    The last of these commits may differ from the files on disk.
    """
    found: VersionMap = {}

    for path in dict.fromkeys((*wanted, *now)):
        if path in wanted:
            target = wanted[path]
        else:
            target = states.at_head(path)

        if target != (now[path] if path in now else states.at_head(path)):
            found[path] = target

    return found


def normalize_version(
    new: PathVersion | None, final: PathVersion | None, start: PathVersion | None
) -> PathVersion | None:
    """Return the version of a path for an intermediate commit.

    A mode is kept only if the path has it at the start or at the end; otherwise it becomes 100644.
    Return None for anything that is not a regular file.
    """
    if new is None or new in (final, start):
        return new
    if new.mode not in ("100644", "100755"):
        return None

    modes = {one.mode for one in (final, start) if one is not None}
    if new.mode in modes:
        return new

    return PathVersion("100644", new.object_id)
