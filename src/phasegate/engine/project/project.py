"""A repository in work: where its things are, its configuration, and the clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from phasegate.config import Config, load_config
from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.project.local_ports import FileDocumentStore, LocalRefs, SystemClock
from phasegate.engine.project.ports import Clock, DocumentStore, Refs, format_timestamp
from phasegate.errors import ConfigError
from phasegate.sandbox.job import StopEvent
from phasegate.storage.location import Location, find_linked_worktree_git_dir, locate_repository

# Doors name the type
from phasegate.storage.store import Store as Store
from phasegate.storage.store import open_store
from phasegate.storage.trail_recovery import recover_trails
from phasegate.workspace.objects import Signature
from phasegate.workspace.repository import Repository, open_repository, read_user_identity


class Project(NamedTuple):
    """One repository and what a person set for it."""

    root: Path
    repository: Repository
    location: Location
    config: Config
    # Set when the run that uses this is to end
    stop: StopEvent
    refs: Refs
    document_store: DocumentStore
    # Of the jobs that run now, by id; the latest is last
    activities: MutableMapping[str, Activity]
    # Of our checks, that run now
    running_commands: MutableMapping[str, RunningCommand]
    clock: Clock = SystemClock()
    # The git directory of the linked worktree that the person is in
    worktree_git_dir: Path | None = None

    @property
    def jobs_folder(self) -> Path:
        return self.location.jobs_folder

    @property
    def worktrees_folder(self) -> Path:
        return self.root / self.config.paths.worktrees

    @property
    def features_folder(self) -> Path:
        return self.root / self.config.paths.features

    def make_signature(self) -> Signature:
        """Who commits what agents could not commit themselves, and when."""
        return Signature(read_user_identity(self.repository), int(self.clock.time_s()))

    def make_origin(self, interface: str) -> OrderOrigin:
        """The person at work, as the giver of an order that came through a door."""
        return OrderOrigin(read_user_identity(self.repository).name, interface)

    def now(self) -> str:
        """This moment, as every record writes it."""
        return format_timestamp(self.clock.time_s())


def open_project(start: Path, flags: Mapping[str, str] | None = None) -> Project:
    """The repository around a folder."""
    location = locate_repository(start, os.environ)
    config = load_config(location.root, os.environ, flags).config
    repository = open_repository(location.root)
    papers = FileDocumentStore(location.data_folder)
    refs = LocalRefs(repository)
    standing = find_linked_worktree_git_dir(start)

    return Project(
        root=location.root,
        repository=repository,
        location=location,
        config=config,
        stop=StopEvent(),
        refs=refs,
        document_store=papers,
        activities={},
        running_commands={},
        worktree_git_dir=standing,
    )


@contextmanager
def open_project_store(project: Project) -> Iterator[Store]:
    """The store, for writing.

    What a dead process left unfinished in the trails is finished first.
    """
    if project.location.fleet_copy:
        raise ConfigError(
            "the fleet's record is only read here", "give orders at the command line, with --fleet"
        )

    new_id = project.clock.new_id
    with open_store(project.location, new_id(), project.now()) as store:
        recover_trails(store, project.location, new_id(), project.now())
        with _copy_to_bucket(project):
            yield store


def _copy_to_bucket(project: Project) -> AbstractContextManager[None]:
    """Copy the record to a bucket meanwhile, where one is set."""
    if not project.config.storage.is_set:
        return nullcontext()

    # Few use it, and it loads obstore
    from phasegate.engine.bucket import copy_in_background

    return copy_in_background(project.location, project.config.storage, project.clock.new_id())
