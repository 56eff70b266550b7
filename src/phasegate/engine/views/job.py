"""One run of an agent: what it was told, wrote and claimed, and beside that what was seen."""

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

# Characters
MAX_EVIDENCE_CHARS = 64_000
REVIEWER_ROLES = ("challenge", "review")


class JobFile(NamedTuple):
    """A file of a job: its path below the repository; whole where it is of a fleet's record."""

    path: str
    bytes: int


class FalseClaimView(NamedTuple):
    """A claim of an agent's, beside what is the case."""

    claim: str
    truth: str


class JobView(NamedTuple):
    """One run of an agent: what it was told, what it wrote, what it claimed, and what was seen."""

    feature: str
    job: str
    # None where the store does not know it
    row: JobRow | None = None
    prompt: JobFile | None = None
    logs: tuple[JobFile, ...] = ()
    # Its last words
    answer: JobFile | None = None
    # With `commit`: git diff BASE COMMIT shows its work
    base: str = ""
    commit: str = ""
    # What it says that it did
    claimed: Mapping[str, object] | None = None
    # Each claim beside what is the case
    claimed_falsely: tuple[FalseClaimView, ...] = ()
    # What our own checks found in its round
    evidence: str = ""
    # Its trail
    entries: tuple[EntryFields, ...] = ()


def job_view(location: Location, job: str, feature: str | None = None) -> JobView:
    """One run of an agent; the beginning of its id is enough if only one begins so.

    Its trail and files are shown also where the store is lost or damaged: that is when people look
    for them.
    """
    (slug, id_), entries = read_job_trail(location, job, feature)
    folder = location.jobs_folder / id_
    logs = tuple(
        kept
        for name in ("stdout.log", "stderr.log")
        if (kept := _find_file(location, folder / name))
    )
    prompt, said = (_find_file(location, folder / name) for name in ("prompt.xml", ANSWER_FILE))
    view = JobView(
        feature=slug, job=id_, entries=tuple(entries), prompt=prompt, logs=logs, answer=said
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

    seen = read_evidence(location, row)
    return view._replace(
        row=row, base=base, commit=commit, claimed=claimed, claimed_falsely=falsely, evidence=seen
    )


def _find_file(location: Location, path: Path) -> JobFile | None:
    """A file of a job, if it holds anything."""
    if path.is_file():
        size = path.stat().st_size
    else:
        size = 0

    if size:
        return JobFile(str(path if location.fleet_copy else path.relative_to(location.root)), size)
    return None


def _find_commits(events: Sequence[StreamEvent], job: JobRow) -> tuple[str, str]:
    """The commit that a job began with and the one that holds its work.

    Of a judge, those that it was to compare.
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

        if event.package == job.wp:
            found = _event_commit(event)
        else:
            found = ""

        if found and has_ended:
            return latest, found
        if found:
            before, latest = (latest, found)

    return latest, ""


def _event_commit(event: StreamEvent) -> str:
    match event.event:
        case PackagePrepared(commit) | Harvested(commit) | DocumentsWritten(commit):
            return commit
    return ""


def _read_claims(
    reader: StoreReader, slug: str, job: str
) -> tuple[Mapping[str, object] | None, tuple[FalseClaimView, ...]]:
    """What a job claimed, and which of its claims are false."""
    claimed: Mapping[str, object] | None = None
    falsely: tuple[FalseClaimView, ...] = ()

    for recorded in reader.events(slug):
        if recorded.kind not in (AGENT_CLAIMED, AGENT_CLAIMED_FALSELY):
            continue

        found = read_json(recorded.payload, dict[str, object])
        said = found.get("said")
        if recorded.kind == AGENT_CLAIMED and isinstance(said, dict) and said.get("job_id") == job:
            claimed = said

        claims = found.get("claims")
        if (
            recorded.kind == AGENT_CLAIMED_FALSELY
            and found.get("job") == job
            and isinstance(claims, list)
        ):
            falsely = tuple(FalseClaimView(claim, truth) for claim, truth in claims)

    return claimed, falsely


def read_evidence(location: Location, job: JobRow) -> str:
    """What our own checks found in the round of a job; empty where none ran."""
    path = location.data_folder / "evidence" / job.feature / f"{job.wp}-{job.round}.md"
    if not job.wp or not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_EVIDENCE_CHARS)
