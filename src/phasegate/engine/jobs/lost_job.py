"""Close a job whose process is gone: kill what is left of it, and record when it was last seen."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.machine.package_events import JobEndKind
from phasegate.engine.journal.entries import LOG_FILES
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project
from phasegate.sandbox.orphans import kill_tagged_processes
from phasegate.storage.row_events import job_ended_event
from phasegate.storage.rows import JobRow, NewEvent
from phasegate.workspace.removal import remove_tree


def clean_up_job(project: Project, job: str) -> None:
    """Kill the processes of a lost job and remove its private folders.

    Two agents must not work in one checkout. The home folder is removed because it may still hold
    the shared sign-in.
    """
    kill_tagged_processes(job)
    remove_private_folders(project.jobs_folder / job)


def read_last_seen(project: Project, row: JobRow) -> str:
    """Return the time of a lost job's last output, or its start if it printed nothing.

    The trail does not show this time, because the next process appends entries to the trail of a
    dead one.
    """
    logs = (project.jobs_folder / row.id / name for name in LOG_FILES)
    modified_s = [path.stat().st_mtime for path in logs if path.exists()]
    if modified_s:
        return max(row.started, min(format_timestamp(max(modified_s)), project.now()))

    return row.started


def make_lost_row(row: JobRow, last_seen: str) -> NewEvent:
    """Build the journal row that closes a lost job."""
    return job_ended_event(row._replace(ended=last_seen, outcome=str(JobEndKind.LOST)))


def remove_private_folders(folder: Path) -> None:
    """Remove the agent's home, temporary and data folders; keep the logs of the job."""
    for name in ("home", "tmp", "data"):
        if (folder / name).is_dir():
            remove_tree(folder / name)
