"""The repository of a fleet: its git remote, and the id that binds record and queues to it."""

from __future__ import annotations

from pathlib import Path

from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError
from phasegate.workspace.repository.remote import Remote, read_remote_url, with_user_credential
from phasegate.workspace.repository_id import NewRepositoryId, check_remote_id, read_local_id

# By git directory: a worker asks for it several times a step
_known_ids: dict[Path, str] = {}


def fleet_remote(project: Project) -> Remote:
    """Return the git remote through which the fleet exchanges code."""
    name = project.config.forge.remote
    if url := read_remote_url(project.repository, name):
        return with_user_credential(Remote(url))
    raise ConfigError(
        f"there is no remote {name!r}",
        "a fleet exchanges code through a git remote; add one: git remote add",
    )


def register_repository(project: Project) -> str:
    """Return the repository's id as the remote has it; the first caller makes it."""
    new = NewRepositoryId(project.clock.new_id(), project.make_signature())
    return check_remote_id(project.repository, fleet_remote(project), new)


def find_registered_id(project: Project) -> str:
    """Return the repository's id as the remote has it; empty if it has none yet."""
    return check_remote_id(project.repository, fleet_remote(project), None)


def get_repository_id(project: Project) -> str:
    """Return the repository's id: from this clone if it has it, else registered at the remote."""
    key = project.repository.common_dir
    if key not in _known_ids:
        kept = read_local_id(project.repository)
        _known_ids[key] = kept or register_repository(project)
    return _known_ids[key]
