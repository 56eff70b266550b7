"""Detect what changed outside of a checkout while an agent ran in it without a sandbox.

Other packages and features move their branches at the same time; each such move is recorded. Their
agents write to their own checkouts, and artifacts are written through Phasegate. Every other change
is attributed to the agent: its author is unknown, and the user can check it. One write cannot be
detected: into the checkout of a package that runs at the same time. The scope, the checks and the
review of that package protect it.
"""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.work_package import PackageState
from phasegate.engine.project.project import Project
from phasegate.storage.git_anchor import ANCHOR_REF
from phasegate.storage.lock_holder import find_live_holder
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import PackageRow
from phasegate.workspace.checkout.checkout import list_checkouts
from phasegate.workspace.repository.outside_changes import (
    OutsideState,
    capture_outside_state,
    find_outside_changes,
)

_IN_WORK = (PackageState.DOING, PackageState.FOR_REVIEW)
PackageRows = dict[tuple[str, str], PackageRow]


class CheckoutSurroundingsMonitor:
    """Detect changes outside a job's checkout by comparing snapshots of the repository.

    Checkouts of blocked packages are included: no agent works there, so nothing may change.
    """

    def __init__(self, project: Project, reader: StoreReader, feature: str, work: str) -> None:
        self._project = project
        self._reader = reader
        self._own_key = (feature, work)
        self._packages_before = self._read_packages()
        self._seqs_before = self._read_last_seqs()
        self._blocked_checkouts = self._find_blocked_checkouts()
        self._before = self._take_snapshot()

    def list_changes(self) -> list[str]:
        """Return the paths and refs that changed, except those that Phasegate itself changed."""
        after = self._take_snapshot()
        others = self._find_other_active_work()
        changes = find_outside_changes(
            self._project.repository, self._before, after, own_refs=(ANCHOR_REF,)
        )
        busy = tuple(
            f"{self._worktrees}/{slug}-{name}{end}"
            for slug, name in others
            for end in ("/", "-agent")
        )

        return [change.path for change in changes if not change.path.startswith(busy)]

    def _take_snapshot(self) -> OutsideState:
        return capture_outside_state(
            self._project.repository, self._list_unwatched_folders(), self._blocked_checkouts
        )

    def _find_blocked_checkouts(self) -> dict[str, Path]:
        """Return the checkouts of blocked packages: they must not change.

        The checkouts of other packages may be created or removed at any time.
        """
        blocked = {
            key for key, row in self._packages_before.items() if row.state == PackageState.BLOCKED
        }
        others = {f"{slug}-{work}" for slug, work in blocked - {self._own_key}}

        return {
            f"{self._worktrees}/{name}": Path(record.folder)
            for name, record in list_checkouts(self._project.repository)
            if name.partition("-agent")[0] in others
        }

    @property
    def _worktrees(self) -> str:
        return self._project.config.paths.worktrees

    def _find_other_active_work(self) -> set[tuple[str, str]]:
        """Return the packages and phases that another process runs, or ran since the snapshot."""
        after = self._read_packages()
        changed = {
            key
            for key in self._packages_before.keys() | after.keys()
            if self._packages_before.get(key) != after.get(key)
        }
        busy = {
            key
            for rows in (self._packages_before, after)
            for key, row in rows.items()
            if row.state in _IN_WORK
        }

        return (changed | busy | self._list_phases_of_active_features()) - {self._own_key}

    def _list_phases_of_active_features(self) -> set[tuple[str, str]]:
        """Return all phases of each other feature that was worked on since the snapshot."""
        after = self._read_last_seqs()
        locks = self._project.location.locks_folder
        busy = {
            slug
            for slug in after
            if after[slug] != self._seqs_before.get(slug) or find_live_holder(locks, slug)
        }
        rows = [row for row in self._reader.workflows() if row.feature in busy - {self._own_key[0]}]

        return {(row.feature, work) for row in rows for work in (*row.phases.split(), "archive")}

    def _read_last_seqs(self) -> dict[str, int]:
        # One query: a record in a bucket would otherwise be queried once per feature
        return self._reader.last_seqs()

    def _read_packages(self) -> PackageRows:
        slugs = [slug for slug in self._reader.features() if slug]
        return {(slug, row.id): row for slug in slugs for row in self._reader.packages(slug)}

    def _list_unwatched_folders(self) -> tuple[str, ...]:
        paths = self._project.config.paths
        return (paths.worktrees.partition("/")[0], ".phasegate", ".isdlc")
