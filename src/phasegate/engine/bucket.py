"""The bucket of `[storage]`.

Opened from settings, filled while somebody works, verified from any machine.

The copy is made by a thread of its own, from the journal. Nobody waits for it but for a few seconds
at the end, and then only while the bucket answers. What is not there then goes with the next
command, or with `audit push`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import NamedTuple

from phasegate.config import load_config
from phasegate.config.settings import StorageSettings
from phasegate.engine.project.project import Project
from phasegate.errors import (
    ConfigError,
    EnvironmentUnavailable,
    PhasegateError,
    StateConflict,
    TemporarilyUnavailable,
)
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.storage.audit import AuditReport
from phasegate.storage.bucket.audit import verify_bucket
from phasegate.storage.bucket.client import Bucket, BucketAddress, retry_with_backoff
from phasegate.storage.bucket.copier import BucketCopier
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.location import (
    CLONE_PATH_FILE,
    FLEET_COPIES_FOLDER,
    Location,
    find_main_worktree,
    locate_repository,
    prepare_data_folder,
)
from phasegate.storage.reader import open_store_reader

COPY_INTERVAL_S = 1.0
FINAL_COPY_TIMEOUT_S = 5.0
# Where the record itself is there
BUCKET_TIMEOUT_S = 600.0
_log = logging.getLogger("phasegate")


class CopyReport(NamedTuple):
    """What was copied, and what was not."""

    bucket: str
    copied: int
    waiting: int
    why_not: str = ""


def make_bucket_address(storage: StorageSettings) -> BucketAddress:
    """Where the settings say that the bucket is."""
    if not storage.is_set:
        raise ConfigError("no bucket is set", "set url or endpoint in [storage] of phasegate.toml")
    named, _, prefix = storage.url.removeprefix("s3://").rstrip("/").partition("/")
    return BucketAddress(storage.endpoint, named or storage.bucket, prefix, storage.region)


def open_bucket(
    storage: StorageSettings, environ: Mapping[str, str], timeout_s: float = 0.0
) -> Bucket:
    """The bucket that the settings name, waited for so long.

    Keys come from variables, or from the usual chain.
    """
    address = make_bucket_address(storage)
    names = storage.access_key_env, storage.secret_key_env
    keys = [environ.get(name, "").strip() for name in names if name]
    if not all(keys):
        raise EnvironmentUnavailable(
            f"{' or '.join(map(str, names))} is not set", f"they hold the keys for {address}"
        )

    return Bucket(address, (keys[0], keys[1]) if keys else None, retry_timeout_s=timeout_s)


def open_fleet_record(project: Project, timeout_s: float = BUCKET_TIMEOUT_S) -> BucketStore:
    """The record of a fleet.

    The bucket, which is waited for when it is away, and a copy that all here read from.
    """
    bucket = open_bucket(project.config.storage, os.environ, timeout_s)
    own = project.location._replace(fleet_copy=None)
    # Locks of this machine
    prepare_data_folder(own)

    return BucketStore(
        bucket,
        own,
        project.clock.new_id,
        locate_fleet_copy(project).data_folder / own.store_path.name,
    )


def locate_fleet_copy(project: Project) -> Location:
    """Where the fleet's record is copied to on this machine.

    A folder that no agent sees, read as `.phasegate` is.
    """
    root = project.root
    digest = sha256(
        f"{make_bucket_address(project.config.storage)}\0{root}".encode(errors="surrogateescape")
    ).hexdigest()
    folder = project.location.state_home / FLEET_COPIES_FOLDER / f"{root.name}-fleet-{digest[:8]}"
    if not (folder / CLONE_PATH_FILE).is_file():
        make_folder(folder)
        replace_file(folder / CLONE_PATH_FILE, os.fsencode(root))

    return project.location._replace(fleet_copy=folder)


@contextmanager
def copy_in_background(location: Location, storage: StorageSettings, by: str) -> Iterator[None]:
    """Have the record copied while the block runs, and what is left at its end as far as the bucket
    answers.
    """
    ending = Event()
    thread = Thread(
        target=_copy_until_stopped, args=(location, storage, by, ending), name="copier", daemon=True
    )
    thread.start()

    try:
        yield
    finally:
        ending.set()
        thread.join(FINAL_COPY_TIMEOUT_S)


def _copy_until_stopped(
    location: Location, storage: StorageSettings, by: str, stopping: Event
) -> None:
    """Copy what comes until the end, and then the rest, unless the bucket is away."""
    try:
        with _open_copier(location, open_bucket(storage, os.environ), by) as copier:
            while True:
                # Asked first: what was recorded before the end is copied then
                is_last = stopping.is_set()
                _copy_all(copier, stopping, stopping.is_set)
                if is_last:
                    return

                stopping.wait(COPY_INTERVAL_S)
    except PhasegateError as error:
        later = "it goes with the next command, or: phasegate audit push"
        if isinstance(error, TemporarilyUnavailable):
            hint = later
        else:
            hint = error.hint

        _log.warning("the record is not in the bucket yet: %s (%s)", error.message, hint)


def _copy_all(copier: BucketCopier, stopping: Event, should_give_up: Callable[[], bool]) -> None:
    """Copy what is not in the bucket, and be patient where it is away."""

    def pause(pause_s: float) -> bool:
        stopping.wait(pause_s)
        # It is tried once more at the end
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
    """Copy what is not in the bucket, being patient for so long."""
    location = locate_repository(folder, os.environ)
    bucket = open_bucket(load_config(location.root, os.environ).config.storage, os.environ)
    until_s = monotonic() + wait_s
    why_not = ""
    with _open_copier(location, bucket, "push") as copier:
        before = copier.pending_entries
        try:
            _copy_all(copier, Event(), lambda: monotonic() > until_s)
        except TemporarilyUnavailable as error:
            why_not = error.message

        waiting = copier.pending_entries

    return CopyReport(str(bucket.address), before - waiting, waiting, why_not)


def verify_bucket_copy(folder: Path) -> AuditReport:
    """What the bucket holds, by itself and against what was recorded here."""
    root = find_main_worktree(folder)
    bucket = open_bucket(
        load_config(root, os.environ).config.storage, os.environ, FINAL_COPY_TIMEOUT_S
    )
    is_repository = os.path.lexists(root / ".git")

    return verify_bucket(bucket, locate_repository(folder, os.environ) if is_repository else None)
