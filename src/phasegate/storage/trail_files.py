"""The trails of jobs as files: `audit/{feature}/{job}.jsonl` below `.phasegate`, each written as a whole."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import EnvironmentUnavailable
from phasegate.files import read_plain
from phasegate.files.durable_write import remove_left, replace_at
from phasegate.files.safe_open import closing_descriptor, make_beneath, opened_folder
from phasegate.storage.location import Location

Key = tuple[str, str]  # feature and job
_LARGEST_BYTES = 1 << 28


def trail_path(location: Location, feature: str, job: str) -> Path:
    """Where a job's trail is, once it was closed."""
    return location.trails / require_slug(feature) / f"{require_slug(job, 'job id')}.jsonl"


def trail_files(location: Location) -> dict[Key, Path]:
    """Every trail below `.phasegate`, by feature and job."""
    return {(path.parent.name, path.stem): path for path in sorted(location.trails.glob("*/*.jsonl"))}


def read_trail(path: Path) -> bytes:
    """The bytes of a trail; none if there is no plain file."""
    return read_plain(path, _LARGEST_BYTES) or b""


def export_trail(location: Location, feature: str, job: str, content: bytes) -> None:
    """Put a trail in its place, whole or not at all, and durably. No link below `.phasegate` is followed."""
    path = trail_path(location, feature, job)
    try:
        with opened_folder(location.folder) as top:
            with closing_descriptor(make_beneath(top, path.parent.relative_to(location.folder).parts)) as folder:
                replace_at(folder, path.name, content, 0o600, aside=top)  # what a crash leaves is no trail
            remove_left(top)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the trail {path} cannot be written: {error.strerror}", "check the disk"
        ) from error
