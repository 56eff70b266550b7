"""Find a package, phase or job by name, and read its stored parts: diff, prompt, log and so on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from phasegate.core.answer.parse import parse_answer
from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.core.machine.feature_events import CommandsRan, DocumentsWritten, ReportWritten
from phasegate.core.machine.package_events import Harvested, PackageMerged
from phasegate.core.plan.work_package import is_package_id
from phasegate.core.test_strength.page import render_strength
from phasegate.core.text.finding import suggest_closest
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.workflow_phases import is_phase_named
from phasegate.engine.journal.package import read_start_commits
from phasegate.engine.project.checkout_diff import diff_checkouts
from phasegate.engine.project.project import Project
from phasegate.engine.views.feature import PhaseView, feature_view
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.job import JobView, job_view, read_evidence
from phasegate.engine.views.job_log import WaitCallback, read_log_lines, read_log_text
from phasegate.engine.views.overview import PackageCard
from phasegate.engine.views.package import planned_cards, with_rounds
from phasegate.engine.views.refused import read_refused_changes
from phasegate.engine.views.strength import read_strength
from phasegate.errors import ConfigError
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow, WorkflowRow
from phasegate.workspace.repository.commit_log import diff_changes, diff_commits
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import resolve_commit

ARCHIVE = "archive"


class PartKind(StrEnum):
    """Kinds of stored parts."""

    DIFF = "diff"
    PROMPT = "prompt"
    LOG = "log"
    ANSWER = "answer"
    EVIDENCE = "evidence"


class Subject(NamedTuple):
    """A package, a phase or a job. Exactly one of the last three fields is set."""

    feature: str
    name: str
    # Oldest first
    jobs: tuple[JobRow, ...]
    package: PackageCard | None = None
    phase: PhaseView | None = None
    job: JobView | None = None


class StoredPart(NamedTuple):
    """A stored part of a subject; `job` is empty if it belongs to no single job."""

    kind: PartKind
    feature: str
    subject: str
    job: str
    text: str


def find_subject(
    project: Project, reader: StoreReader, wanted: str, feature: str | None = None
) -> Subject:
    """Find the package, phase or job with this name.

    If several features have it, the only active one is chosen; otherwise the name is refused.
    """
    rows = {row.feature: row for row in reader.workflows()}

    if is_package_id(wanted):
        slugs = [
            slug
            for slug in reader.features()
            if any(row.id == wanted for row in reader.packages(slug))
        ]
        return _package_subject(
            reader,
            wanted,
            _resolve_feature(wanted, slugs, rows, feature, "phasegate package list"),
        )

    if wanted == ARCHIVE:
        slugs = [slug for slug in rows if any(job.phase == ARCHIVE for job in reader.jobs(slug))]
        return _archive_subject(
            reader,
            rows,
            _resolve_feature(wanted, slugs, rows, feature, "phasegate complete starts it"),
        )

    slugs = [
        slug
        for slug, row in rows.items()
        if any(is_phase_named(key, wanted) for key in row.phases.split())
    ]
    if slugs:
        return _phase_subject(
            reader, wanted, _resolve_feature(wanted, slugs, rows, feature, "phasegate status")
        )

    try:
        view = job_view(project.location, wanted, feature)
    except ConfigError as error:
        keys = " ".join(row.phases for row in rows.values()).split()
        meant = suggest_closest(wanted, [key.partition("-")[2] for key in keys])
        raise ConfigError(
            f"'{escape_unprintable(wanted)}' is neither a package nor a phase, "
            f"and {error.message}{meant}",
            "phasegate status lists packages and phases, phasegate show PHASE lists its jobs",
        ) from error

    return Subject(
        feature=view.feature, name=view.job, jobs=(view.row,) if view.row else (), job=view
    )


def _resolve_feature(
    wanted: str,
    candidates: Sequence[str],
    rows: dict[str, WorkflowRow],
    feature: str | None,
    hint: str,
) -> str:
    """Return the feature that has the wanted subject; raise if none or several do."""
    matches = [slug for slug in candidates if feature in (None, slug)]
    if len(matches) > 1:
        matches = [
            slug for slug in matches if slug in rows and rows[slug].stage not in ENDED_STAGE_NAMES
        ] or matches

    if not matches:
        suffix = f" in {feature}" if feature else ""
        raise ConfigError(f"there is no {wanted}{suffix}", hint)
    if len(matches) > 1:
        choices = ", ".join(f"phasegate show {wanted} --feature {slug}" for slug in sorted(matches))
        raise ConfigError(f"several features have a {wanted}", f"choose one: {choices}")

    return matches[0]


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
    """Return the archive step as a phase: it has agents and documents, but no gate."""
    jobs = tuple(job for job in reader.jobs(slug) if job.phase == ARCHIVE)
    status = "completed" if rows[slug].stage in ENDED_STAGE_NAMES else "in_progress"
    return Subject(
        feature=slug,
        name=ARCHIVE,
        jobs=jobs,
        phase=PhaseView(key=ARCHIVE, name="Archive", gate="", status=status, rounds=()),
    )


def select_jobs(subject: Subject, role: str | None, round_: int | None) -> Subject:
    """Return a subject with only the jobs of a role or round; raise if there are none."""
    if role is None and round_ is None:
        return subject

    jobs = [job for job in subject.jobs if role in (None, job.phase)]
    jobs = [job for job in jobs if round_ in (None, job.round)]
    if not jobs:
        found = sorted({f"{job.phase} in round {job.round}" for job in subject.jobs})
        raise ConfigError(
            f"{subject.name} has no such agent run", f"available: {', '.join(found) or 'none'}"
        )
    return subject._replace(jobs=tuple(jobs))


def read_part(
    project: Project, reader: StoreReader, subject: Subject, kind: PartKind
) -> StoredPart:
    """Read a stored part of a subject; raise if it does not exist.

    Prompt, log and answer are those of the newest job.
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
            f"there is no {kind} of {subject.name}",
            f"phasegate show {subject.name} lists what is available",
        )

    return StoredPart(kind=kind, feature=subject.feature, subject=subject.name, job=job, text=text)


def follow_log(project: Project, subject: Subject, wait: WaitCallback) -> Iterator[str]:
    """Yield the log of a subject's latest job until it ends or `wait` returns False."""
    return read_log_lines(project, subject.job or _newest_job_view(project, subject), wait)


def newest_job_id(subject: Subject) -> str:
    """Return the id of the job, or of the newest job of a package or phase."""
    if subject.job is None and not subject.jobs:
        raise ConfigError(f"no agent has worked on {subject.name} yet", "phasegate status")
    if subject.job:
        return subject.job.job
    return subject.jobs[-1].id


def _newest_job_view(project: Project, subject: Subject) -> JobView:
    return job_view(project.location, newest_job_id(subject), subject.feature)


def _read_job_text(project: Project, view: JobView, kind: PartKind) -> str:
    """Return the log, prompt or answer of a job."""
    if kind is PartKind.LOG:
        return read_log_text(project, view)

    file = view.prompt if kind is PartKind.PROMPT else view.answer
    text = ""
    if file:
        text = (project.location.root / file.path).read_text(encoding="utf-8", errors="replace")

    # The answer is shown without the agent's reasoning.
    if kind is PartKind.ANSWER:
        return parse_answer(text, "implement").text

    return text


def _read_diff(project: Project, reader: StoreReader, subject: Subject) -> str:
    """Return the diff of a job, package or phase; empty if nothing was committed."""
    if subject.job is not None:
        base = subject.job.base
        commit = subject.job.commit
    elif subject.package is not None:
        if read_refused_changes(project, reader, subject.feature, subject.name):
            # Nothing of it was committed
            return "".join(diff_checkouts(project, subject.feature, subject.name).values())

        return _read_package_diff(project, reader, subject)
    else:
        base, commit = _phase_commits(reader, subject)

    if base and commit:
        return diff_commits(project.repository, base, commit)
    return ""


def _read_package_diff(project: Project, reader: StoreReader, subject: Subject) -> str:
    """Return the changes of a package alone.

    Its work may have been continued on top of packages that were merged after its start: it is
    compared with the feature as it was before the merge, or as it is.
    """
    repository = project.repository
    base = resolve_commit(repository, f"{BRANCH_PREFIX}feat/{subject.feature}") or ""
    commit = ""
    for event in JournalFollower(reader, subject.feature, after=0).read_events():
        if event.package != subject.name:
            continue
        if isinstance(event.event, Harvested):
            commit = event.event.commit or commit
        elif isinstance(event.event, PackageMerged):
            base = resolve_commit(repository, f"{event.event.commit}^1") or base

    base = base or read_start_commits(reader, subject.feature).get(subject.name, "")
    if base and commit:
        return diff_changes(repository, base, commit)
    return ""


def _phase_commits(reader: StoreReader, subject: Subject) -> tuple[str, str]:
    """Return the commits of the feature's branch before a phase and at its end."""
    before = ""
    written = list[str]()
    has_started = False

    for event in JournalFollower(reader, subject.feature, after=0).read_events():
        has_started = has_started or event.phase == subject.name
        if isinstance(event.event, DocumentsWritten | ReportWritten):
            if event.phase == subject.name:
                written.append(event.event.commit)
            elif not has_started:
                before = event.event.commit

    if written:
        return (before or f"{written[0]}^", written[-1])

    return ("", "")


def _subject_evidence(project: Project, reader: StoreReader, subject: Subject) -> Iterator[str]:
    """Yield the check results: of the last round, or of each gate check of a phase."""
    if subject.phase is not None:
        yield from _phase_evidence(reader, subject, subject.phase)
        return

    if subject.package is not None and (
        strength := read_strength(project, reader, subject.feature, subject.name)
    ):
        yield render_strength(strength) + "\n"

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

    yield from (f"false claim: {claim}; observed: {truth}" for claim, truth in view.claimed_falsely)


def _first_text(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")


def _phase_evidence(reader: StoreReader, subject: Subject, phase: PhaseView) -> Iterator[str]:
    """Yield the commands and gate checks of a phase as text."""
    for event in JournalFollower(reader, subject.feature, after=0).read_events():
        if event.phase == subject.name and isinstance(event.event, CommandsRan):
            results = ", ".join(
                f"{name} {'passed' if ok else 'FAILED'}" for name, ok in event.event.results.items()
            )
            summary = f"commands on {event.event.commit[:12]}: {results or 'none'}"
            yield f"{summary}\n{event.event.findings}".rstrip()

    for check in phase.rounds:
        yield "\n".join(
            (
                f"{phase.gate}, round {check.round}: {check.outcome}",
                *(f"  {why}" for why in check.reasons),
            )
        )
