"""Open the bucket of `[storage]`, copy the record to it, and verify it from any machine.

A separate thread copies the journal. At its end, a command waits a few seconds for this thread, and
only while the bucket responds. The next command or `audit push` copies the remaining entries.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import NamedTuple

from phasegate.config.load import load_config
from phasegate.config.settings import StorageSettings
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.project.fleet_repository import find_registered_id, get_repository_id
from phasegate.engine.project.project import Project, open_project
from phasegate.errors import (
    ConfigError,
    EnvironmentUnavailable,
    PhasegateError,
    StateConflict,
    TemporarilyUnavailable,
)
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.storage.bucket.client import Bucket, BucketAddress, retry_with_backoff
from phasegate.storage.bucket.copier import BucketCopier
from phasegate.storage.bucket.journal import BucketStore, read_seen_ends
from phasegate.storage.bucket.verify_copy import verify_bucket
from phasegate.storage.location import (
    CLONE_PATH_FILE,
    FLEET_COPIES_FOLDER,
    Location,
    find_main_worktree,
    locate_repository,
    prepare_data_folder,
)
from phasegate.storage.reader import open_store_reader
from phasegate.storage.verify_audit import AuditReport
from phasegate.workspace.repository_id import read_local_id

COPY_INTERVAL_S = 1.0
FINAL_COPY_TIMEOUT_S = 5.0
# Retry time if the record itself is stored in the bucket
BUCKET_TIMEOUT_S = 600.0
# Folder of the records of repositories whose [storage] has no prefix
REPOSITORIES_FOLDER = "repositories"
# Object with the id of the repository that a record belongs to
BINDING_PATH = "fleet/repository"
_bound_addresses: dict[BucketAddress, str] = {}
_log = logging.getLogger("phasegate")


class CopyReport(NamedTuple):
    """The numbers of copied and of pending entries."""

    bucket: str
    copied: int
    waiting: int
    why_not: str = ""


def make_bucket_address(storage: StorageSettings) -> BucketAddress:
    """Return the address of the configured bucket."""
    if not storage.is_set:
        raise ConfigError(
            "no bucket is configured", "set url or endpoint in [storage] of phasegate.toml"
        )

    name, _, prefix = storage.url.removeprefix("s3://").rstrip("/").partition("/")
    return BucketAddress(storage.endpoint, name or storage.bucket, prefix, storage.region)


def make_fleet_address(project: Project) -> BucketAddress:
    """Return the address of the fleet's record.

    Without a configured prefix each repository has its own, so that a bucket can be shared.
    """
    address = make_bucket_address(project.config.storage)
    if address.prefix:
        return address
    return address._replace(prefix=f"{REPOSITORIES_FOLDER}/{get_repository_id(project)}")


def open_fleet_bucket(
    project: Project, timeout_s: float = BUCKET_TIMEOUT_S, stop: Event | None = None
) -> Bucket:
    """Open the part of the bucket that has the fleet's record of this repository.

    Raises StateConflict if it has the record of another repository. The first one to open it binds
    it to its repository. A worker passes `stop`, which is set when it must end.
    """
    bucket = open_bucket(
        storage=project.config.storage,
        environ=os.environ,
        timeout_s=timeout_s,
        address=make_fleet_address(project),
        repository=get_repository_id(project),
        stop=stop,
    )
    if _bound_addresses.get(bucket.address) != bucket.repository:
        _bind_to_repository(bucket)
        _bound_addresses[bucket.address] = bucket.repository

    return bucket


def _bind_to_repository(bucket: Bucket) -> None:
    """Write the repository's id into the bucket; raise if it has another one."""
    own = bucket.repository.encode()
    found = bucket.get(BINDING_PATH)
    if found is None and not bucket.create(BINDING_PATH, own):
        found = bucket.get(BINDING_PATH)

    if found is not None and found.data != own:
        other = escape_unprintable(found.data.decode(errors="replace")[:12])
        raise StateConflict(
            f"{bucket.address} contains the fleet of repository {other}, and this is"
            f" repository {bucket.repository[:12]}",
            "leave out the prefix in [storage], then each repository gets its own; or set another",
        )


def open_bucket(
    storage: StorageSettings,
    environ: Mapping[str, str],
    timeout_s: float = 0.0,
    address: BucketAddress | None = None,
    repository: str = "",
    stop: Event | None = None,
) -> Bucket:
    """Open the configured bucket; retry for up to `timeout_s` while it is unavailable.

    Keys come from the configured variables, or from the default credential chain.
    """
    address = address or make_bucket_address(storage)
    names = storage.access_key_env, storage.secret_key_env
    keys = [environ.get(name, "").strip() for name in names if name]
    if not all(keys):
        raise EnvironmentUnavailable(
            f"{' or '.join(map(str, names))} is not set",
            f"set these variables to the access keys of {address}",
        )

    return Bucket(
        address,
        (keys[0], keys[1]) if keys else None,
        retry_timeout_s=timeout_s,
        repository=repository,
        stop=stop,
    )


def open_fleet_record(
    project: Project, timeout_s: float = BUCKET_TIMEOUT_S, stop: Event | None = None
) -> BucketStore:
    """Open the record of a fleet: the bucket, and a local copy for readers on this machine."""
    bucket = open_fleet_bucket(project, timeout_s, stop)
    # Locks are in the clone's own .phasegate, even if the project reads a copy of the fleet
    clone = project.location._replace(fleet_copy=None)
    prepare_data_folder(clone)

    return BucketStore(
        bucket,
        clone,
        project.clock.new_id,
        locate_fleet_copy(project).data_folder / clone.store_path.name,
    )


def locate_fleet_copy(project: Project) -> Location:
    """Return the location of this machine's copy of the fleet's record.

    It is a folder that no agent can read, with the same layout as `.phasegate`.
    """
    root = project.root
    place = f"{make_fleet_address(project)} {get_repository_id(project)}"
    digest = sha256(f"{place}\0{root}".encode(errors="surrogateescape")).hexdigest()
    folder = project.location.state_home / FLEET_COPIES_FOLDER / f"{root.name}-fleet-{digest[:8]}"
    if not (folder / CLONE_PATH_FILE).is_file():
        make_folder(folder)
        replace_file(folder / CLONE_PATH_FILE, os.fsencode(root))

    return project.location._replace(fleet_copy=folder)


@contextmanager
def copy_in_background(location: Location, storage: StorageSettings, by: str) -> Iterator[None]:
    """Copy the record to the bucket in a thread while the block runs.

    The rest is copied at the end, if the bucket answers within a few seconds.
    """
    stopping = Event()
    thread = Thread(
        target=_copy_until_stopped,
        args=(location, storage, by, stopping),
        name="copier",
        daemon=True,
    )
    thread.start()

    try:
        yield
    finally:
        stopping.set()
        thread.join(FINAL_COPY_TIMEOUT_S)


def _copy_until_stopped(
    location: Location, storage: StorageSettings, by: str, stopping: Event
) -> None:
    """Copy new entries until `stopping` is set, then the rest, unless the bucket is unavailable."""
    try:
        with _open_copier(location, open_bucket(storage, os.environ), by) as copier:
            while True:
                # Read before copying, so that the last pass copies everything recorded before it
                is_last = stopping.is_set()
                _copy_all(copier, stopping, stopping.is_set)
                if is_last:
                    return

                stopping.wait(COPY_INTERVAL_S)
    except PhasegateError as error:
        hint = error.hint
        if isinstance(error, TemporarilyUnavailable):
            hint = "the next command copies it, or run: phasegate audit push"

        _log.warning("the record is not in the bucket yet: %s (%s)", error.message, hint)


def _copy_all(copier: BucketCopier, stopping: Event, should_give_up: Callable[[], bool]) -> None:
    """Copy all missing entries; retry with back-off while the bucket is unavailable."""

    def pause(pause_s: float) -> bool:
        stopping.wait(pause_s)
        # Do not give up before the last attempt
        return False

    while retry_with_backoff(copier.copy_next_page, should_give_up, pause):
        pass


@contextmanager
def _open_copier(location: Location, bucket: Bucket, by: str) -> Iterator[BucketCopier]:
    reader = open_store_reader(location)
    if reader is None:
        raise StateConflict("nothing has been recorded in this repository yet", "phasegate run")
    with reader:
        yield BucketCopier(location, reader, bucket, by)


def push_to_bucket(folder: Path, wait_s: float) -> CopyReport:
    """Copy all missing entries to the bucket; retry for up to `wait_s` seconds."""
    location = locate_repository(folder, os.environ)
    bucket = open_bucket(load_config(location.root, os.environ).config.storage, os.environ)
    until_s = monotonic() + wait_s
    problem = ""
    with _open_copier(location, bucket, "push") as copier:
        before = copier.pending_entries
        try:
            _copy_all(copier, Event(), lambda: monotonic() > until_s)
        except TemporarilyUnavailable as error:
            problem = error.message

        waiting = copier.pending_entries

    return CopyReport(str(bucket.address), before - waiting, waiting, problem)


def verify_bucket_copy(folder: Path) -> AuditReport:
    """Verify the bucket by itself and, in a repository, against the entries that were recorded or
    read here.
    """
    root = find_main_worktree(folder)
    bucket = open_bucket(
        load_config(root, os.environ).config.storage, os.environ, FINAL_COPY_TIMEOUT_S
    )
    if not os.path.lexists(root / ".git"):
        fleets = [
            bucket.at(bucket.address._replace(prefix=f"{REPOSITORIES_FOLDER}/{name}"))
            for name in bucket.list_folders(REPOSITORIES_FOLDER)
        ]
        return verify_bucket(bucket, None, [bucket, *fleets])

    location = locate_repository(folder, os.environ)
    project = open_project(root)
    if not _has_fleet(project):
        return verify_bucket(bucket, location)

    seen = read_seen_ends(locate_fleet_copy(project).store_path)
    fleet_bucket = bucket.at(make_fleet_address(project), get_repository_id(project))
    return verify_bucket(bucket, location, [fleet_bucket], seen)


def _has_fleet(project: Project) -> bool:
    """Return whether this clone, or its remote, has the id that a fleet needs."""
    if read_local_id(project.repository):
        return True

    with suppress(ConfigError, EnvironmentUnavailable):
        return bool(find_registered_id(project))
    return False
