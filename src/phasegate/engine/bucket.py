"""The bucket of `[storage]`: opened from settings, filled while somebody works, verified from any machine.

The copy is made by a thread of its own, from the journal. Nobody waits for it but for a few seconds at the end, and
then only while the bucket answers. What is not there then goes with the next command, or with `audit push`.
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

from phasegate.config import load
from phasegate.config.settings import Storage
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, EnvironmentUnavailable, PhasegateError, StateConflict, TryLater
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.storage.audit import AuditReport
from phasegate.storage.bucket.audit import verify_copy
from phasegate.storage.bucket.client import Bucket, BucketAddress, patiently
from phasegate.storage.bucket.copier import Copier
from phasegate.storage.bucket.journal import BucketRecord
from phasegate.storage.location import CLONE, COPIES, Location, locate, main_tree, prepare_folder
from phasegate.storage.reader import read_store

LOOK_EVERY_S = 1.0
LONGEST_END_S = 5.0
BUCKET_WITHIN_S = 600.0  # where the record itself is there
_log = logging.getLogger("phasegate")


class CopyReport(NamedTuple):
    """What was copied, and what was not."""

    bucket: str
    copied: int
    waiting: int
    why_not: str = ""


def address_of(storage: Storage) -> BucketAddress:
    """Where the settings say that the bucket is."""
    if not storage.is_set:
        raise ConfigError("no bucket is set", "set url or endpoint in [storage] of phasegate.toml")
    named, _, prefix = storage.url.removeprefix("s3://").rstrip("/").partition("/")
    return BucketAddress(storage.endpoint, named or storage.bucket, prefix, storage.region)


def open_bucket(storage: Storage, environ: Mapping[str, str], within_s: float = 0.0) -> Bucket:
    """The bucket that the settings name, waited for so long. Keys come from variables, or from the usual chain."""
    address = address_of(storage)
    names = storage.access_key_env, storage.secret_key_env
    keys = [environ.get(name, "").strip() for name in names if name]
    if not all(keys):
        raise EnvironmentUnavailable(f"{' or '.join(map(str, names))} is not set", f"they hold the keys for {address}")
    return Bucket(address, (keys[0], keys[1]) if keys else None, within_s=within_s)


def fleet_record(project: Project, within_s: float = BUCKET_WITHIN_S) -> BucketRecord:
    """The record of a fleet: the bucket, which is waited for when it is away, and a copy that all here read from."""
    bucket = open_bucket(project.config.storage, os.environ, within_s)
    own = project.location._replace(copy=None)
    prepare_folder(own)  # locks of this machine
    return BucketRecord(bucket, own, project.clock.new_id, fleet_copy(project).folder / own.store.name)


def fleet_copy(project: Project) -> Location:
    """Where the fleet's record is copied to on this machine: a folder that no agent sees, read as `.phasegate` is."""
    root = project.root
    digest = sha256(f"{address_of(project.config.storage)}\0{root}".encode(errors="surrogateescape")).hexdigest()
    folder = project.location.state_home / COPIES / f"{root.name}-fleet-{digest[:8]}"
    if not (folder / CLONE).is_file():
        make_folder(folder)
        replace_file(folder / CLONE, os.fsencode(root))
    return project.location._replace(copy=folder)


@contextmanager
def copied_meanwhile(location: Location, storage: Storage, by: str) -> Iterator[None]:
    """Have the record copied while the block runs, and what is left at its end as far as the bucket answers."""
    ending = Event()
    thread = Thread(target=_copy_until, args=(location, storage, by, ending), name="copier", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(LONGEST_END_S)


def _copy_until(location: Location, storage: Storage, by: str, ending: Event) -> None:
    """Copy what comes until the end, and then the rest, unless the bucket is away."""
    try:
        with _copier(location, open_bucket(storage, os.environ), by) as copier:
            while True:
                is_last = ending.is_set()  # asked first: what was recorded before the end is copied then
                _copy_all(copier, ending, ending.is_set)
                if is_last:
                    return
                ending.wait(LOOK_EVERY_S)
    except PhasegateError as error:
        later = "it goes with the next command, or: phasegate audit push"
        hint = later if isinstance(error, TryLater) else error.hint
        _log.warning("the record is not in the bucket yet: %s (%s)", error.message, hint)


def _copy_all(copier: Copier, ending: Event, gives_up: Callable[[], bool]) -> None:
    """Copy what is not in the bucket, and be patient where it is away."""

    def pause(pause_s: float) -> bool:
        ending.wait(pause_s)
        return False  # it is tried once more at the end

    while patiently(copier.copy_page, gives_up, pause):
        pass


@contextmanager
def _copier(location: Location, bucket: Bucket, by: str) -> Iterator[Copier]:
    reader = read_store(location)
    if reader is None:
        raise StateConflict("nothing has been recorded in this repository yet", "phasegate run")
    with reader:
        yield Copier(location, reader, bucket, by)


def push(folder: Path, wait_s: float) -> CopyReport:
    """Copy what is not in the bucket, being patient for so long."""
    location = locate(folder, os.environ)
    bucket = open_bucket(load(location.root, os.environ).config.storage, os.environ)
    until_s, why_not = monotonic() + wait_s, ""
    with _copier(location, bucket, "push") as copier:
        before = copier.waiting
        try:
            _copy_all(copier, Event(), lambda: monotonic() > until_s)
        except TryLater as error:
            why_not = error.message
        waiting = copier.waiting
    return CopyReport(str(bucket.address), before - waiting, waiting, why_not)


def verified_remotely(folder: Path) -> AuditReport:
    """What the bucket holds, by itself and against what was recorded here."""
    root = main_tree(folder)
    bucket = open_bucket(load(root, os.environ).config.storage, os.environ, LONGEST_END_S)
    is_repository = os.path.lexists(root / ".git")
    return verify_copy(bucket, locate(folder, os.environ) if is_repository else None)
