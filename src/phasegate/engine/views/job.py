"""Collect the data of one job: its prompt, logs, answer and claims, and the observed facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.machine.feature_events import DocumentsWritten
from phasegate.core.machine.package_events import Harvested, PackagePrepared
from phasegate.engine.journal.entries import AGENT_CLAIMED, AGENT_CLAIMED_FALSELY, ANSWER_FILE
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.errors import StateConflict
from phasegate.storage.location import Location
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.rows import JobRow
from phasegate.storage.trail_reader import EntryFields, read_job_trail
from phasegate.typed import read_json

MAX_EVIDENCE_CHARS = 64_000
REVIEWER_ROLES = ("challenge", "review")


class JobFile(NamedTuple):
    """A file of a job.

    The path is relative to the repository; absolute in a copy of a fleet's record.
    """

    path: str
    bytes: int


class FalseClaimView(NamedTuple):
    """A false claim of an agent, with the observed fact."""

    claim: str
    truth: str


class JobView(NamedTuple):
    """One job of an agent: prompt, logs, answer, claims and evidence."""

    feature: str
    job: str
    # None if the store has no row of it
    row: JobRow | None = None
    prompt: JobFile | None = None
    logs: tuple[JobFile, ...] = ()
    # The final answer
    answer: JobFile | None = None
    # `git diff BASE COMMIT` shows its changes
    base: str = ""
    commit: str = ""
    # Result that the agent reported
    claimed: Mapping[str, object] | None = None
    claimed_falsely: tuple[FalseClaimView, ...] = ()
    # Check results of its round
    evidence: str = ""
    # Audit trail
    entries: tuple[EntryFields, ...] = ()


def job_view(location: Location, job: str, feature: str | None = None) -> JobView:
    """Return one job; a unique prefix of its id is enough.

    Its trail and files are available even if the store is lost or damaged: that is when they are
    needed.
    """
    (slug, id_), entries = read_job_trail(location, job, feature)
    folder = location.jobs_folder / id_
    logs = (_find_file(location, folder / name) for name in ("stdout.log", "stderr.log"))
    view = JobView(
        feature=slug,
        job=id_,
        entries=tuple(entries),
        prompt=_find_file(location, folder / "prompt.xml"),
        logs=tuple(log for log in logs if log),
        answer=_find_file(location, folder / ANSWER_FILE),
    )
    try:
        reader = open_store_reader(location)
    except StateConflict:
        return view

    row = reader.find_job(id_) if reader else None
    if reader is None or row is None:
        return view

    with reader:
        events = [*JournalFollower(reader, slug, after=0).read_events()]
        base, commit = _find_commits(events, row)
        claimed, falsely = _read_claims(reader, slug, id_)

    return view._replace(
        row=row,
        base=base,
        commit=commit,
        claimed=claimed,
        claimed_falsely=falsely,
        evidence=read_evidence(location, row),
    )


def _find_file(location: Location, path: Path) -> JobFile | None:
    """Return a file of a job, unless it is empty or missing."""
    size = path.stat().st_size if path.is_file() else 0
    if not size:
        return None

    shown_path = path if location.fleet_copy else path.relative_to(location.root)
    return JobFile(str(shown_path), size)


def _find_commits(events: Sequence[StreamEvent], job: JobRow) -> tuple[str, str]:
    """Return the commit that a job started from and the commit with its changes.

    For a reviewer or critic: the two commits that it compared.
    """
    before = latest = ""
    has_ended = False

    for event in events:
        if (
            event.kind == "job.ended"
            and isinstance(event.event, JobRow)
            and event.event.id == job.id
        ):
            if job.phase in REVIEWER_ROLES:
                return before, latest

            has_ended = True

        commit = _event_commit(event) if event.package == job.wp else ""
        if commit and has_ended:
            return latest, commit
        if commit:
            before, latest = latest, commit

    return latest, ""


def _event_commit(event: StreamEvent) -> str:
    match event.event:
        case PackagePrepared(commit) | Harvested(commit) | DocumentsWritten(commit):
            return commit
    return ""


def _read_claims(
    reader: StoreReader, slug: str, job: str
) -> tuple[Mapping[str, object] | None, tuple[FalseClaimView, ...]]:
    """Return a job's claims, and the false ones among them."""
    claimed: Mapping[str, object] | None = None
    falsely: tuple[FalseClaimView, ...] = ()

    for recorded in reader.events(slug):
        if recorded.kind not in (AGENT_CLAIMED, AGENT_CLAIMED_FALSELY):
            continue

        entry = read_json(recorded.payload, dict[str, object])
        said = entry.get("said")
        if recorded.kind == AGENT_CLAIMED and isinstance(said, dict) and said.get("job_id") == job:
            claimed = said

        claims = entry.get("claims")
        if (
            recorded.kind == AGENT_CLAIMED_FALSELY
            and entry.get("job") == job
            and isinstance(claims, list)
        ):
            falsely = tuple(FalseClaimView(claim, truth) for claim, truth in claims)

    return claimed, falsely


def read_evidence(location: Location, job: JobRow) -> str:
    """Read the check results of a job's round; empty if no checks ran."""
    path = location.data_folder / "evidence" / job.feature / f"{job.wp}-{job.round}.md"
    if not job.wp or not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_EVIDENCE_CHARS)
