"""A repository in work: where its things are, its configuration, and the clock."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from phasegate.cage.stopping import Stop
from phasegate.config import Config, load
from phasegate.record.location import Location, locate
from phasegate.record.recovery import recover
from phasegate.record.store import Store, open_store
from phasegate.workspace.objects import Signature
from phasegate.workspace.repository import Repository, open_repository, person_at_work


class Project(NamedTuple):
    """One repository and what a person set for it."""

    root: Path
    repository: Repository
    location: Location
    config: Config
    stop: Stop  # set when the run that uses this is to end

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
        return Signature(person_at_work(self.repository), int(time.time()))


def open_project(start: Path, flags: Mapping[str, str] | None = None) -> Project:
    """The repository around a folder."""
    location = locate(start, os.environ)
    config = load(location.root, os.environ, flags).config
    return Project(location.root, open_repository(location.root), location, config, Stop())


@contextmanager
def opened_store(project: Project) -> Iterator[Store]:
    """The store, for writing. What a dead process left unfinished in the trails is finished first."""
    with open_store(project.location, new_id(), now()) as store:
        recover(store, project.location, new_id(), now())
        yield store


def now() -> str:
    """This moment, as every record writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id() -> str:
    """A fresh id for a job, a store or a writer."""
    return str(uuid4())
