"""What a person can name.

A package, a phase or a job; and what is kept of it: diff, prompt, log, answer, evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from phasegate.core.answer.parse import parse_answer
from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.core.machine.feature_events import CommandsRan, DocumentsWritten, ReportWritten
from phasegate.core.machine.package_events import Harvested
from phasegate.core.plan.work_package import is_package_id
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.workflows import is_phase_named
from phasegate.engine.journal.package import read_start_commits
from phasegate.engine.project.project import Project
from phasegate.engine.views.feature import PhaseView, feature_view
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.job import JobFile, JobView, job_view, read_evidence
from phasegate.engine.views.job_log import WaitCallback, read_log_lines, read_log_text
from phasegate.engine.views.overview import PackageCard
from phasegate.engine.views.package import planned_cards, with_rounds
from phasegate.errors import ConfigError
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow, WorkflowRow
from phasegate.workspace.commit_log import diff_commits

ARCHIVE = "archive"


class PartKind(StrEnum):
    """What is kept of a subject."""

    DIFF = "diff"
    PROMPT = "prompt"
    LOG = "log"
    ANSWER = "answer"
    EVIDENCE = "evidence"


class Subject(NamedTuple):
    """A package, a phase or a job. Exactly one of the last three is set."""

    feature: str
    name: str
    # Oldest first
    jobs: tuple[JobRow, ...]
    package: PackageCard | None = None
    phase: PhaseView | None = None
    job: JobView | None = None


class KeptPart(NamedTuple):
    """Something that is kept.

    `job` is the one that it belongs to, empty for what belongs to no single one.
    """

    kind: PartKind
    feature: str
    subject: str
    job: str
    text: str


def find_subject(
    project: Project, reader: StoreReader, wanted: str, feature: str | None = None
) -> Subject:
    """The package, phase or job of that name.

    Where several features have it, the only one in work; else a refusal.
    """
    rows = {row.feature: row for row in reader.workflows()}

    if is_package_id(wanted):
        having = [
            slug
            for slug in reader.features()
            if any(row.id == wanted for row in reader.packages(slug))
        ]
        return _package_subject(
            reader,
            wanted,
            _resolve_feature(wanted, having, rows, feature, "phasegate package list"),
        )

    if wanted == ARCHIVE:
        having = [slug for slug in rows if any(job.phase == ARCHIVE for job in reader.jobs(slug))]
        return _archive_subject(
            reader,
            rows,
            _resolve_feature(wanted, having, rows, feature, "phasegate complete begins it"),
        )

    having = [
        slug
        for slug, row in rows.items()
        if any(is_phase_named(key, wanted) for key in row.phases.split())
    ]
    if having:
        return _phase_subject(
            reader, wanted, _resolve_feature(wanted, having, rows, feature, "phasegate status")
        )

    try:
        view = job_view(project.location, wanted, feature)
    except ConfigError as error:
        hint = "phasegate status shows packages and phases, phasegate show PHASE the jobs of one"
        raise ConfigError(
            f"'{escape_unprintable(wanted)}' is no package and no phase, and {error.message}", hint
        ) from error

    return Subject(
        feature=view.feature, name=view.job, jobs=(view.row,) if view.row else (), job=view
    )


def _resolve_feature(
    wanted: str, having: Sequence[str], rows: dict[str, WorkflowRow], feature: str | None, hint: str
) -> str:
    found = [slug for slug in having if feature in (None, slug)]
    if len(found) > 1:
        found = [
            slug for slug in found if slug in rows and rows[slug].stage not in ENDED_STAGE_NAMES
        ] or found

    if not found:
        inside = f" in {feature}" if feature else ""
        raise ConfigError(f"there is no {wanted}{inside}", hint)
    if len(found) > 1:
        choices = ", ".join(f"phasegate show {wanted} --feature {slug}" for slug in sorted(found))
        raise ConfigError(f"several features have a {wanted}", f"choose one: {choices}")

    return found[0]


def _package_subject(reader: StoreReader, wanted: str, slug: str) -> Subject:
    card = next(card for card in planned_cards(reader, slug) if card.id == wanted)
    card = with_rounds(reader, card)
    return Subject(feature=slug, name=wanted, jobs=card.jobs or (), package=card)


def _phase_subject(reader: StoreReader, wanted: str, slug: str) -> Subject:
    view = feature_view(reader, slug)
    assert view is not None, "it has a workflow"
    phase = next(phase for phase in view.phases if is_phase_named(phase.key, wanted))
    jobs = tuple(
        job for job in reader.jobs(slug) if job.workflow_phase == phase.key and job.phase != ARCHIVE
    )

    return Subject(feature=slug, name=phase.key, jobs=jobs, phase=phase)


def _archive_subject(reader: StoreReader, rows: dict[str, WorkflowRow], slug: str) -> Subject:
    """What comes behind the last gate is shown as a phase: it has agents, documents and no gate."""
    jobs = tuple(job for job in reader.jobs(slug) if job.phase == ARCHIVE)
    if rows[slug].stage in ENDED_STAGE_NAMES:
        status = "completed"
    else:
        status = "in_progress"

    return Subject(
        feature=slug,
        name=ARCHIVE,
        jobs=jobs,
        phase=PhaseView(key=ARCHIVE, name="Archive", gate="", status=status, rounds=()),
    )


def read_part(project: Project, reader: StoreReader, subject: Subject, kind: PartKind) -> KeptPart:
    """What is kept of a subject.

    Prompt, log and answer are those of its newest job. What is not there is an error.
    """
    if kind is PartKind.DIFF:
        job = ""
        text = _read_diff(project, reader, subject)
    elif kind is PartKind.EVIDENCE:
        job = ""
        text = "\n".join(_subject_evidence(project, reader, subject))
    else:
        view = subject.job or _newest_job_view(project, subject)
        job = view.job
        text = _read_job_text(project, view, kind)

    if not text:
        raise ConfigError(
            f"no {kind} of {subject.name} is kept",
            f"phasegate show {subject.name} lists what there is",
        )

    return KeptPart(kind=kind, feature=subject.feature, subject=subject.name, job=job, text=text)


def follow_log(project: Project, subject: Subject, wait: WaitCallback) -> Iterator[str]:
    """The log of a subject's newest job, line by line until the job ends or `wait` says no."""
    return read_log_lines(project, subject.job or _newest_job_view(project, subject), wait)


def newest_job_id(subject: Subject) -> str:
    """The job that a subject is, or the newest for it."""
    if subject.job is None and not subject.jobs:
        raise ConfigError(f"no agent has worked on {subject.name} yet", "phasegate status")
    if subject.job:
        return subject.job.job
    return subject.jobs[-1].id


def _newest_job_view(project: Project, subject: Subject) -> JobView:
    return job_view(project.location, newest_job_id(subject), subject.feature)


def _read_job_text(project: Project, view: JobView, kind: PartKind) -> str:
    if kind is PartKind.LOG:
        return read_log_text(project, view)

    kept: JobFile | None = view.prompt if kind is PartKind.PROMPT else view.answer
    if kept:
        text = (project.location.root / kept.path).read_text(encoding="utf-8", errors="replace")
    else:
        text = ""

    # Without its thoughts
    if kind is PartKind.ANSWER:
        return parse_answer(text, "implement").text

    return text


def _read_diff(project: Project, reader: StoreReader, subject: Subject) -> str:
    if subject.job is not None:
        base = subject.job.base
        commit = subject.job.commit
    elif subject.package is not None:
        base = read_start_commits(reader, subject.feature).get(subject.name, "")
        commit = _last_package_commit(reader, subject)
    else:
        base, commit = _phase_commits(reader, subject)

    if base and commit:
        return diff_commits(project.repository, base, commit)
    return ""


def _last_package_commit(reader: StoreReader, subject: Subject) -> str:
    commit = ""
    for event in JournalFollower(reader, subject.feature, after=0).read_events():
        if event.package == subject.name and isinstance(event.event, Harvested):
            commit = event.event.commit or commit
    return commit


def _phase_commits(reader: StoreReader, subject: Subject) -> tuple[str, str]:
    """The commits of the feature's branch before a phase, and at the end of what came of it."""
    before = ""
    written = list[str]()
    has_begun = False

    for event in JournalFollower(reader, subject.feature, after=0).read_events():
        has_begun = has_begun or event.phase == subject.name
        if isinstance(event.event, DocumentsWritten | ReportWritten):
            if event.phase == subject.name:
                written.append(event.event.commit)
            elif not has_begun:
                before = event.event.commit

    if written:
        return (before or f"{written[0]}^", written[-1])

    return ("", "")


def _subject_evidence(project: Project, reader: StoreReader, subject: Subject) -> Iterator[str]:
    """What our own checks found.

    Of a job and a package in the last round, of a phase at each check of its gate.
    """
    if subject.phase is not None:
        yield from _phase_evidence(reader, subject, subject.phase)
        return

    implementers = [job for job in subject.jobs if job.wp]
    view = subject.job or (
        job_view(project.location, implementers[-1].id) if implementers else None
    )
    if view is None:
        return

    if text := view.evidence or _first_text(
        read_evidence(project.location, job) for job in reversed(implementers)
    ):
        yield text

    yield from (f"false claim: {claim}; seen: {truth}" for claim, truth in view.claimed_falsely)


def _first_text(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")


def _phase_evidence(reader: StoreReader, subject: Subject, phase: PhaseView) -> Iterator[str]:
    for event in JournalFollower(reader, subject.feature, after=0).read_events():
        if event.phase == subject.name and isinstance(event.event, CommandsRan):
            passed = ", ".join(
                f"{name} {'passed' if ok else 'FAILED'}" for name, ok in event.event.results.items()
            )
            yield f"commands on {event.event.commit[:12]}: {passed or 'none'}\n{event.event.findings}".rstrip()

    for check in phase.rounds:
        yield "\n".join(
            (
                f"{phase.gate}, round {check.round}: {check.outcome}",
                *(f"  {why}" for why in check.reasons),
            )
        )
