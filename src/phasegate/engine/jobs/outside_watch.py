"""Where no sandbox holds: what changed outside of a checkout while an agent ran in it.

Other packages and features in work move their branches meanwhile: each such move was noted. Their agents write to their
own checkouts, and artifacts are written through us. All else that changed counts as the agent's: who did it cannot be
told, and a person can look. What cannot be seen here at all: a write into the checkout of a package that is in work at
the same time. That package's own scope, checks and review are what stands against it.
"""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.work_package import State
from phasegate.engine.project.project import Project
from phasegate.storage.git_anchor import REF
from phasegate.storage.lock_holder import feature_holder
from phasegate.storage.reader import Reader
from phasegate.storage.rows import Package
from phasegate.workspace.checkout import list_checkouts
from phasegate.workspace.outside_changes import Sight, changed_outside, look_outside

_IN_WORK = (State.DOING, State.FOR_REVIEW)
Rows = dict[tuple[str, str], Package]


class Watch:
    """A look at everything outside before a job; `changes` is the look after it."""

    def __init__(self, project: Project, reader: Reader, feature: str, work: str) -> None:
        self._project, self._reader = project, reader
        self._mine = (feature, work)
        self._rows = self._packages()
        self._seqs = self._lengths()
        self._checkouts = self._of_others()
        self._before = self._look()

    def changes(self) -> list[str]:
        """The paths and refs that changed and are not ours."""
        after = self._look()
        others = self._others_in_work()
        found = changed_outside(self._project.repository, self._before, after, ours=(REF,))
        busy = tuple(f"{self._worktrees}/{slug}-{name}{end}" for slug, name in others for end in ("/", "-agent"))
        return [change.path for change in found if not change.path.startswith(busy)]

    def _look(self) -> Sight:
        return look_outside(self._project.repository, self._unwatched(), self._checkouts)

    def _of_others(self) -> dict[str, Path]:
        """The checkouts that nobody should touch now: of packages that are blocked. Others are made or put away."""
        blocked = {key for key, row in self._rows.items() if row.state == State.BLOCKED}
        others = {f"{slug}-{work}" for slug, work in blocked - {self._mine}}
        found = list_checkouts(self._project.repository)
        named = {name: Path(record.folder) for name, record in found if name.partition("-agent")[0] in others}
        return {f"{self._worktrees}/{name}": folder for name, folder in named.items()}

    @property
    def _worktrees(self) -> str:
        return self._project.config.paths.worktrees

    def _others_in_work(self) -> set[tuple[str, str]]:
        """Packages that another dispatcher has, or had meanwhile."""
        after = self._packages()
        moved = {key for key in self._rows.keys() | after.keys() if self._rows.get(key) != after.get(key)}
        busy = {key for rows in (self._rows, after) for key, row in rows.items() if row.state in _IN_WORK}
        return (moved | busy | self._steps_of_others()) - {self._mine}

    def _steps_of_others(self) -> set[tuple[str, str]]:
        """The steps of other features that somebody carries out now, or did meanwhile."""
        after, locks = self._lengths(), self._project.location.locks
        busy = {slug for slug in after if after[slug] != self._seqs.get(slug) or feature_holder(locks, slug)}
        rows = [row for row in self._reader.workflows() if row.feature in busy - {self._mine[0]}]
        return {(row.feature, work) for row in rows for work in (*row.phases.split(), "archive")}

    def _lengths(self) -> dict[str, int]:
        return self._reader.lengths()  # one question: a record in a bucket is asked for each feature otherwise

    def _packages(self) -> Rows:
        slugs = [slug for slug in self._reader.features() if slug]
        return {(slug, row.id): row for slug in slugs for row in self._reader.packages(slug)}

    def _unwatched(self) -> tuple[str, ...]:
        paths = self._project.config.paths
        return (paths.worktrees.partition("/")[0], ".phasegate", ".isdlc")
