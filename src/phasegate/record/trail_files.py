"""The trails of jobs as files: `audit/{feature}/{job}.jsonl` below `.phasegate`, each written as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phasegate.errors import EnvironmentUnavailable
from phasegate.record.beneath import make_beneath
from phasegate.record.durable import open_folder, remove_left, replace_at
from phasegate.record.location import Location
from phasegate.rules.artifact_path import require_slug

Key = tuple[str, str]  # feature and job


def trail_path(location: Location, feature: str, job: str) -> Path:
    """Where a job's trail is, once it was closed."""
    return location.trails / require_slug(feature) / f"{require_slug(job, 'job id')}.jsonl"


def trail_files(location: Location) -> dict[Key, Path]:
    """Every trail below `.phasegate`, by feature and job."""
    return {(path.parent.name, path.stem): path for path in sorted(location.trails.glob("*/*.jsonl"))}


def read_trail(path: Path) -> bytes:
    """The bytes of a trail; none if there is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def export_trail(location: Location, feature: str, job: str, content: bytes) -> None:
    """Put a trail in its place, whole or not at all, and durably. No link below `.phasegate` is followed."""
    path = trail_path(location, feature, job)
    try:
        with _opened(open_folder(location.folder)) as top:
            with _opened(make_beneath(top, path.parent.relative_to(location.folder).parts)) as folder:
                replace_at(folder, path.name, content, 0o600, aside=top)  # what a crash leaves is no trail
            remove_left(top)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the trail {path} cannot be written: {error.strerror}", "check the disk"
        ) from error


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
