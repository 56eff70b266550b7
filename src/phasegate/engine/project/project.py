"""An opened repository: its folders, configuration, ports and clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from phasegate.config.load import load_config
from phasegate.config.settings import Config
from phasegate.config.trust import TRUST_VARIABLE
from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.core.trust import TRUSTS_EVERYTHING, Trust
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.project.check_record import CheckRecord
from phasegate.engine.project.local_services import FileDocumentStore, LocalRefs, SystemClock
from phasegate.engine.project.ports import Clock, DocumentStore, Refs, format_timestamp
from phasegate.errors import ConfigError
from phasegate.files.block_reader import reject_path_outside
from phasegate.sandbox.job import StopEvent
from phasegate.storage.journal_store import Store as Store
from phasegate.storage.journal_store import open_store
from phasegate.storage.location import Location, find_linked_worktree_git_dir, locate_repository
from phasegate.storage.trail_recovery import recover_trails
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.repository import (
    Repository,
    open_repository,
    read_user_identity,
)


class Project(NamedTuple):
    """One repository with its configuration and ports."""

    root: Path
    repository: Repository
    location: Location
    config: Config
    # Set it to stop the run that uses this project
    stop: StopEvent
    refs: Refs
    document_store: DocumentStore
    # Activities of the running jobs, by id; the job with the latest event is last
    activities: MutableMapping[str, Activity]
    # Commands of the checks that are running
    running_commands: MutableMapping[str, RunningCommand]
    # Results of checks that need not be run again
    check_record: CheckRecord
    clock: Clock = SystemClock()
    # Git directory of the linked worktree that the user is in
    worktree_git_dir: Path | None = None
    # What of the repository's own settings and files may be used
    trust: Trust = TRUSTS_EVERYTHING

    @property
    def jobs_folder(self) -> Path:
        return self.location.jobs_folder

    @property
    def worktrees_folder(self) -> Path:
        return self.root / self.config.paths.worktrees

    @property
    def features_folder(self) -> Path:
        return self.root / self.config.paths.features

    def find_feature_folder(self, slug: str) -> Path:
        """Return the folder of a feature; refuse a link that leads out of the repository."""
        folder = self.features_folder / slug
        reject_path_outside(self.root, folder)
        return folder

    def make_signature(self) -> Signature:
        """Return the user's identity and the time, for commits by Phasegate."""
        return Signature(read_user_identity(self.repository), int(self.clock.time_s()))

    def make_origin(self, interface: str) -> OrderOrigin:
        """Return the user as the origin of an order from an interface."""
        return OrderOrigin(read_user_identity(self.repository).name, interface)

    def now(self) -> str:
        """Return the current time as in all records."""
        return format_timestamp(self.clock.time_s())


def open_project(
    start: Path, flags: Mapping[str, str] | None = None, *, is_own: bool = False
) -> Project:
    """Open the repository that contains a folder.

    `is_own`: Phasegate wrote everything in it, so nothing needs the user's trust.
    """
    location = locate_repository(start, os.environ)
    environ = {**os.environ, TRUST_VARIABLE: "1"} if is_own else os.environ
    effective = load_config(location.root, environ, flags)
    repository = open_repository(location.root)
    return Project(
        root=location.root,
        repository=repository,
        location=location,
        config=effective.config,
        stop=StopEvent(),
        refs=LocalRefs(repository),
        document_store=FileDocumentStore(location.data_folder),
        activities={},
        running_commands={},
        check_record=CheckRecord(),
        worktree_git_dir=find_linked_worktree_git_dir(start),
        trust=effective.trust,
    )


@contextmanager
def open_project_store(project: Project) -> Iterator[Store]:
    """Open the store for writing, after closing the trails that a dead process left open."""
    if project.location.fleet_copy:
        raise ConfigError(
            "the record of the fleet is read-only here",
            "use the command line with --fleet for orders",
        )

    new_id = project.clock.new_id
    with open_store(project.location, new_id(), project.now()) as store:
        recover_trails(store, project.location, new_id(), project.now())
        with project.check_record.attach(store), _copy_to_bucket(project):
            yield store


def _copy_to_bucket(project: Project) -> AbstractContextManager[None]:
    """Copy the record to the configured bucket in the background."""
    if not project.config.storage.is_set:
        return nullcontext()

    # Imported here: it loads obstore, which few users need
    from phasegate.engine.bucket import copy_in_background

    return copy_in_background(project.location, project.config.storage, project.clock.new_id())
