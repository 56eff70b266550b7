"""A repository in work: where its things are, its configuration, and the clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from phasegate.config import Config, load
from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.core.workflow.origin import By
from phasegate.engine.project.local_ports import FilePapers, LocalRefs, SystemClock
from phasegate.engine.project.ports import Clock, Papers, Refs, stamp
from phasegate.errors import ConfigError
from phasegate.sandbox.job import Stop
from phasegate.storage.location import Location, locate, standing_git_dir
from phasegate.storage.store import Store as Store  # doors name the type
from phasegate.storage.store import open_store
from phasegate.storage.trail_recovery import recover
from phasegate.workspace.objects import Signature
from phasegate.workspace.repository import Repository, open_repository, person_at_work


class Project(NamedTuple):
    """One repository and what a person set for it."""

    root: Path
    repository: Repository
    location: Location
    config: Config
    stop: Stop  # set when the run that uses this is to end
    refs: Refs
    papers: Papers
    activities: MutableMapping[str, Activity]  # of the jobs that run now, by id; the latest is last
    commands: MutableMapping[str, RunningCommand]  # of our checks, that run now
    clock: Clock = SystemClock()
    standing: Path | None = None  # the git directory of the linked worktree that the person is in

    @property
    def jobs(self) -> Path:
        return self.location.jobs

    @property
    def worktrees(self) -> Path:
        return self.root / self.config.paths.worktrees

    @property
    def features(self) -> Path:
        return self.root / self.config.paths.features

    def signature(self) -> Signature:
        """Who commits what agents could not commit themselves, and when."""
        return Signature(person_at_work(self.repository), int(self.clock.time_s()))

    def ordered_at(self, door: str) -> By:
        """The person at work, as the giver of an order that came through a door."""
        return By(person_at_work(self.repository).name, door)

    def now(self) -> str:
        """This moment, as every record writes it."""
        return stamp(self.clock.time_s())


def open_project(start: Path, flags: Mapping[str, str] | None = None) -> Project:
    """The repository around a folder."""
    location = locate(start, os.environ)
    config = load(location.root, os.environ, flags).config
    repository = open_repository(location.root)
    papers = FilePapers(location.folder)
    refs, standing = LocalRefs(repository), standing_git_dir(start)
    return Project(location.root, repository, location, config, Stop(), refs, papers, {}, {}, standing=standing)


@contextmanager
def opened_store(project: Project) -> Iterator[Store]:
    """The store, for writing. What a dead process left unfinished in the trails is finished first."""
    if project.location.copy:
        raise ConfigError("the fleet's record is only read here", "give orders at the command line, with --fleet")
    new_id = project.clock.new_id
    with open_store(project.location, new_id(), project.now()) as store:
        recover(store, project.location, new_id(), project.now())
        with _copied(project):
            yield store


def _copied(project: Project) -> AbstractContextManager[None]:
    """Copy the record to a bucket meanwhile, where one is set."""
    if not project.config.storage.is_set:
        return nullcontext()
    from phasegate.engine.bucket import copied_meanwhile  # few use it, and it loads obstore

    return copied_meanwhile(project.location, project.config.storage, project.clock.new_id())
