"""The verdicts of reviewers and critics, by job."""

from __future__ import annotations

from collections.abc import Mapping

from phasegate.core.machine.feature_events import JobEnded
from phasegate.core.machine.package_events import PackageJobStarted, Reviewed
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.job import REVIEWER_ROLES
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow


def read_verdicts(reader: StoreReader, slug: str) -> dict[str, str]:
    """Return the verdict of each job of a feature that gave one."""
    verdicts: dict[str, str] = {}
    last_review: dict[str, str] = {}
    for event in JournalFollower(reader, slug, after=0).read_events():
        match event.event:
            case PackageJobStarted(job=job, role="review"):
                last_review[event.package] = job
            case Reviewed(verdict=verdict) if event.package in last_review:
                verdicts[last_review[event.package]] = str(verdict)
            case JobEnded(job=job, verdict=verdict) if verdict:
                verdicts[job] = str(verdict)

    return verdicts


def describe_outcome(job: JobRow, verdicts: Mapping[str, str]) -> str:
    """Return the verdict of a reviewer or critic, else how the job ended."""
    if job.phase in REVIEWER_ROLES and job.id in verdicts:
        return verdicts[job.id]
    return job.outcome or "running"
