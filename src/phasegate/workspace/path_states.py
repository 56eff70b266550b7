"""What each path of a package holds: where it began, where its branch is, and on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from phasegate.workspace.agent_git_reader import copy_objects
from phasegate.workspace.agent_history import AgentCommit
from phasegate.workspace.changes import Observation
from phasegate.workspace.checkout import Checkout, Record, opened_root
from phasegate.workspace.checkout_files import CheckoutLimits, Found, content_as_seen
from phasegate.workspace.index_file import Snapshot
from phasegate.workspace.objects import Version
from phasegate.workspace.repository import Repository, read_blobs, temporary_folder
from phasegate.workspace.tree_diff import differences

TAKEN_MODES = frozenset(("100644", "100755", "120000"))


class States:
    """What each path holds: at the start, at the last harvest, at the head of the branch now, and on the disk."""

    def __init__(self, repository: Repository, record: Record, head: str, seen: Observation) -> None:
        last, place = record.tip or record.start, repository.place()
        self._tracked: Snapshot = seen.tracked
        self._seen = seen.versions
        self.taken_before = versions(differences(place, record.start, last)) if last != record.start else {}
        self._own = frozenset(record.paths)
        self.since = versions(differences(place, last, head)) if last != head and record.joins is None else {}

    def start(self, path: str) -> Version | None:
        entry = self._tracked.get(path)
        return None if entry is None else Version(entry.mode_text, entry.id_text)

    def last(self, path: str) -> Version | None:
        return self.taken_before[path] if path in self.taken_before else self.start(path)

    def head(self, path: str) -> Version | None:
        return self.since[path] if path in self.since else self.last(path)

    def disk(self, path: str) -> Version | None:
        if path not in self._seen:
            return self.start(path)
        found = self._seen[path]
        return None if found is None else Version(found.mode, found.object_id)

    def wanted(self, allowed: Callable[[str], bool]) -> dict[str, Version | None]:
        """What the allowed paths must hold in the end, where that is not what we last took over."""
        undone = (path for path in self.taken_before if path in self._own and path not in self._seen)
        paths = [path for path in (*self._seen, *undone) if allowed(path)]
        usable = {path: self.disk(path) for path in paths if can_be_taken(self._seen.get(path))}
        return {path: version for path, version in usable.items() if version != self.last(path)}


def versions(changes: Iterable[tuple[str, Version | None, Version | None]]) -> dict[str, Version | None]:
    return {path: new for path, _, new in changes}


def can_be_taken(found: Found | None) -> bool:
    return found is None or (found.mode in TAKEN_MODES and bool(found.object_id))


def contents_seen(checkout: Checkout, seen: Observation, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """What lies at these paths, as far as it can be taken over. One that is not as it was seen is refused."""
    with opened_root(checkout.record) as root:
        for path in paths:
            found = seen.versions[path]
            if found is not None and can_be_taken(found):
                yield path, content_as_seen(root, path, found, checkout.repository.hash_name)


def committed_blobs(
    checkout: Checkout, commits: Iterable[AgentCommit], allowed: Callable[[str], bool], limits: CheckoutLimits
) -> dict[str, tuple[str, bytes]]:
    """What commits of an agent hold at allowed paths: a path and a content for each blob, by its id."""
    changes = [change for commit in commits for change in commit.changes if allowed(change.path)]
    paths = {one.new.object_id: one.path for one in changes if one.new is not None and one.new.mode in TAKEN_MODES}
    if not paths:
        return {}
    with opened_root(checkout.record) as root, temporary_folder(checkout.repository) as room:
        place = copy_objects(root, checkout.repository, room / "objects", limits)
        return {blob: (paths[blob], content) for blob, content in read_blobs(place, paths).items()}


def remaining(
    states: States, wanted: Mapping[str, Version | None], now: Mapping[str, Version | None]
) -> dict[str, Version | None]:
    """What is still to be changed after the agent's own commits: they may have gone another way than the disk."""
    found: dict[str, Version | None] = {}
    for path in dict.fromkeys((*wanted, *now)):
        target = wanted[path] if path in wanted else states.head(path)
        if target != (now[path] if path in now else states.head(path)):
            found[path] = target
    return found


def presentable(new: Version | None, final: Version | None, start: Version | None) -> Version | None:
    """A version on the way, as it may be shown: plain text, unless the path may end or began as something else."""
    if new is None or new in (final, start):
        return new
    if new.mode not in ("100644", "100755"):
        return None
    modes = {one.mode for one in (final, start) if one is not None}
    return new if new.mode in modes else Version("100644", new.object_id)
