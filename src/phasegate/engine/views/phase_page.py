"""One phase of a feature: its documents, the rounds of its gate, findings and agent runs."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.machine.feature_events import JobEnded
from phasegate.core.workflow.phases import required_artifacts
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.views.feature import PhaseView
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.job import REVIEWER_ROLES
from phasegate.engine.views.show import find_subject
from phasegate.engine.views.verdicts import read_verdicts
from phasegate.errors import ConfigError
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow
from phasegate.workspace.repository.repository import read_blobs
from phasegate.workspace.repository.rewrite import read_original_head

MAX_DOCUMENT_BYTES = 200_000


class PhaseDocument(NamedTuple):
    """A document that the gate of the phase requires."""

    path: str
    text: str


class CriticFindings(NamedTuple):
    """What a critic or reviewer of the phase said."""

    job: str
    agent: str
    round: int
    verdict: str
    text: str


class PhasePage(NamedTuple):
    """Everything about one phase."""

    feature: str
    phase: PhaseView
    documents: tuple[PhaseDocument, ...]
    # Newest first
    findings: tuple[CriticFindings, ...]
    jobs: tuple[JobRow, ...]
    # By job
    verdicts: dict[str, str]


def read_phase_page(project: Project, reader: StoreReader, slug: str, wanted: str) -> PhasePage:
    """Read a phase of a feature; raise ConfigError if the feature has no such phase."""
    subject = find_subject(project, reader, wanted, slug)
    if subject.phase is None:
        raise ConfigError(f"{wanted} is not a phase of {slug}", "phasegate status")

    follower = JournalFollower(reader, slug, after=0)
    jobs = {job.id: job for job in subject.jobs}
    findings = []
    for event in follower.read_events():
        ended = event.event
        if isinstance(ended, JobEnded) and ended.job in jobs and ended.verdict:
            job = jobs[ended.job]
            if job.phase in REVIEWER_ROLES:
                findings.append(
                    CriticFindings(
                        job=job.id,
                        agent=job.agent,
                        round=job.round,
                        verdict=str(ended.verdict),
                        text=ended.text,
                    )
                )

    keys = follower.feature.workflow.phases if follower.feature else ()
    return PhasePage(
        feature=slug,
        phase=subject.phase,
        documents=_read_documents(project, slug, subject.phase.key, keys),
        findings=tuple(reversed(findings)),
        jobs=subject.jobs,
        verdicts=read_verdicts(reader, slug),
    )


def _read_documents(
    project: Project, slug: str, key: str, keys: tuple[str, ...]
) -> tuple[PhaseDocument, ...]:
    """Read the documents of a phase from the branch of its feature."""
    own = project.config.phases.get(key)
    configured = own.required_artifacts if own is not None else None
    names = required_artifacts(key, keys, configured)
    head = read_original_head(project.repository, slug)
    blobs = FeatureBranch(project, slug).list_documents(head) if head else {}
    wanted = {
        path: blob
        for path, blob in blobs.items()
        if any(path == name or (name.endswith("/") and path.startswith(name)) for name in names)
    }
    contents = read_blobs(project.repository.place(), wanted.values())
    return tuple(
        PhaseDocument(path, contents[blob][:MAX_DOCUMENT_BYTES].decode(errors="replace"))
        for path, blob in sorted(wanted.items())
    )
