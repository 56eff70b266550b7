"""Where no sandbox holds: what changed outside of a checkout while an agent ran in it.

Other packages and features in work move their branches meanwhile: each such move was noted. Their
agents write to their own checkouts, and artifacts are written through us. All else that changed
counts as the agent's: who did it cannot be told, and a person can look. What cannot be seen here at
all: a write into the checkout of a package that is in work at the same time. That package's own
scope, checks and review are what stands against it.
"""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.work_package import PackageState
from phasegate.engine.project.project import Project
from phasegate.storage.git_anchor import ANCHOR_REF
from phasegate.storage.lock_holder import find_live_holder
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import PackageRow
from phasegate.workspace.checkout import list_checkouts
from phasegate.workspace.outside_changes import (
    OutsideState,
    capture_outside_state,
    find_outside_changes,
)

_IN_WORK = (PackageState.DOING, PackageState.FOR_REVIEW)
PackageRows = dict[tuple[str, str], PackageRow]


class RepositoryMonitor:
    """A look at everything outside before a job; `changes` is the look after it."""

    def __init__(self, project: Project, reader: StoreReader, feature: str, work: str) -> None:
        self._project = project
        self._reader = reader
        self._own_key = (feature, work)
        self._packages_before = self._read_packages()
        self._seqs_before = self._read_last_seqs()
        self._blocked_checkouts = self._find_blocked_checkouts()
        self._before = self._take_snapshot()

    def list_changes(self) -> list[str]:
        """The paths and refs that changed and are not ours."""
        after = self._take_snapshot()
        others = self._find_other_active_packages()
        found = find_outside_changes(
            self._project.repository, self._before, after, own_refs=(ANCHOR_REF,)
        )
        busy = tuple(
            f"{self._worktrees}/{slug}-{name}{end}"
            for slug, name in others
            for end in ("/", "-agent")
        )

        return [change.path for change in found if not change.path.startswith(busy)]

    def _take_snapshot(self) -> OutsideState:
        return capture_outside_state(
            self._project.repository, self._list_unwatched_folders(), self._blocked_checkouts
        )

    def _find_blocked_checkouts(self) -> dict[str, Path]:
        """The checkouts that nobody should touch now: of packages that are blocked.

        Others are made or put away.
        """
        blocked = {
            key for key, row in self._packages_before.items() if row.state == PackageState.BLOCKED
        }
        others = {f"{slug}-{work}" for slug, work in blocked - {self._own_key}}
        found = list_checkouts(self._project.repository)
        named = {
            name: Path(record.folder)
            for name, record in found
            if name.partition("-agent")[0] in others
        }

        return {f"{self._worktrees}/{name}": folder for name, folder in named.items()}

    @property
    def _worktrees(self) -> str:
        return self._project.config.paths.worktrees

    def _find_other_active_packages(self) -> set[tuple[str, str]]:
        """Packages that another dispatcher has, or had meanwhile."""
        after = self._read_packages()
        moved = {
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

        return (moved | busy | self._find_other_active_phases()) - {self._own_key}

    def _find_other_active_phases(self) -> set[tuple[str, str]]:
        """The steps of other features that somebody carries out now, or did meanwhile."""
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
        # One question: a record in a bucket is asked for each feature otherwise
        return self._reader.last_seqs()

    def _read_packages(self) -> PackageRows:
        slugs = [slug for slug in self._reader.features() if slug]
        return {(slug, row.id): row for slug in slugs for row in self._reader.packages(slug)}

    def _list_unwatched_folders(self) -> tuple[str, ...]:
        paths = self._project.config.paths
        return (paths.worktrees.partition("/")[0], ".phasegate", ".isdlc")
