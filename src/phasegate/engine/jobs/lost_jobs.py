"""Close the jobs that a crashed run left open, and save their work.

The callers in `engine/drive` continue the run: they decide the next step from the journal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from phasegate.core.machine.package_events import JobEndKind
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.jobs.step import UnitSteps
from phasegate.engine.journal.entries import LOG_FILES
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project
from phasegate.sandbox.orphans import kill_tagged_processes
from phasegate.storage.row_events import job_ended_event
from phasegate.storage.rows import JobRow, NewEvent
from phasegate.workspace.checkout.removal import remove_tree

S = TypeVar("S")
E = TypeVar("E")


def close_lost_jobs(
    context: DriverContext, journal: UnitJournal[S, E], steps: UnitSteps[S, E], reason: str
) -> None:
    """Close the open jobs that no process runs, and save their work."""
    jobs = steps.list_open_jobs(journal.state)
    for job in jobs:
        clean_up_job(context.project, job)

    steps.save_lost_work(journal.state)
    if not jobs:
        return

    rows = [row for job in jobs if (row := context.record.find_job(job)) is not None]
    last_seen = {row.id: read_last_seen(context.project, row) for row in rows}
    events = [steps.make_lost_event(job, reason, last_seen.get(job, "")) for job in jobs]
    lost_rows = [make_lost_row(row, last_seen[row.id]) for row in rows]
    journal.record(*events, rows=lost_rows)


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
