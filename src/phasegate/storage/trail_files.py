"""The trails of jobs as files.

`audit/{feature}/{job}.jsonl` below `.phasegate`, each written as a whole.
"""

from __future__ import annotations

from pathlib import Path

from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import EnvironmentUnavailable
from phasegate.files import read_regular_file
from phasegate.files.durable_write import remove_stale_temp_files, replace_file_at
from phasegate.files.safe_open import closing_descriptor, folder_descriptor, make_folder_beneath
from phasegate.storage.location import Location

# Feature and job
TrailKey = tuple[str, str]
_MAX_TRAIL_BYTES = 1 << 28


def trail_path(location: Location, feature: str, job: str) -> Path:
    """Where a job's trail is, once it was closed."""
    return location.trails_folder / require_slug(feature) / f"{require_slug(job, 'job id')}.jsonl"


def list_trail_files(location: Location) -> dict[TrailKey, Path]:
    """Every trail below `.phasegate`, by feature and job."""
    return {
        (path.parent.name, path.stem): path
        for path in sorted(location.trails_folder.glob("*/*.jsonl"))
    }


def read_trail(path: Path) -> bytes:
    """The bytes of a trail; none if there is no plain file."""
    return read_regular_file(path, _MAX_TRAIL_BYTES) or b""


def export_trail(location: Location, feature: str, job: str, content: bytes) -> None:
    """Put a trail in its place, whole or not at all, and durably.

    No link below `.phasegate` is followed.
    """
    path = trail_path(location, feature, job)

    try:
        with folder_descriptor(location.data_folder) as top:
            with closing_descriptor(
                make_folder_beneath(top, path.parent.relative_to(location.data_folder).parts)
            ) as folder:
                # What a crash leaves is no trail
                replace_file_at(folder, path.name, content, 0o600, temp_folder=top)

            remove_stale_temp_files(top)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the trail {path} cannot be written: {error.strerror}", "check the disk"
        ) from error
