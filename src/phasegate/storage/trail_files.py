"""Read and write closed trails: one file per job, `.phasegate/audit/{feature}/{job}.jsonl`.

Each file is written atomically.
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
    """Return the path of a job's closed trail."""
    return location.trails_folder / require_slug(feature) / f"{require_slug(job, 'job id')}.jsonl"


def list_trail_files(location: Location) -> dict[TrailKey, Path]:
    """Return every trail below `.phasegate`, by feature and job."""
    return {
        (path.parent.name, path.stem): path
        for path in sorted(location.trails_folder.glob("*/*.jsonl"))
    }


def read_trail(path: Path) -> bytes:
    """Return the bytes of a trail; empty if it is not a regular file."""
    return read_regular_file(path, _MAX_TRAIL_BYTES) or b""


def export_trail(location: Location, feature: str, job: str, content: bytes) -> None:
    """Write a trail file atomically and durably, without following links below `.phasegate`."""
    path = trail_path(location, feature, job)

    try:
        with folder_descriptor(location.data_folder) as top:
            with closing_descriptor(
                make_folder_beneath(top, path.parent.relative_to(location.data_folder).parts)
            ) as folder:
                # A temporary file that a crash leaves must not look like a trail
                replace_file_at(folder, path.name, content, 0o600, temp_folder=top)

            remove_stale_temp_files(top)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the trail {path} cannot be written: {error.strerror}",
            "check the disk space and permissions",
        ) from error
