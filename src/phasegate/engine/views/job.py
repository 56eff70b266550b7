"""One run of an agent: what it was told, wrote and claimed, and beside that what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.machine.feature_events import Written
from phasegate.core.machine.package_events import Harvested, PackagePrepared
from phasegate.engine.journal.entries import ANSWER, CLAIMED, CLAIMED_FALSELY
from phasegate.engine.views.follow import Follower, StreamEvent
from phasegate.errors import StateConflict
from phasegate.storage.location import Location
from phasegate.storage.reader import Reader, read_store
from phasegate.storage.rows import Job
from phasegate.storage.trail_reader import Fields, read_job
from phasegate.typed import read_json

LARGEST_EVIDENCE = 64_000  # characters
JUDGES = ("challenge", "review")


class KeptFile(NamedTuple):
    """A file of a job: its path below the repository; whole where it is of a fleet's record."""

    path: str
    bytes: int


class FalseWord(NamedTuple):
    """A claim of an agent's, beside what is the case."""

    claim: str
    truth: str


class JobView(NamedTuple):
    """One run of an agent: what it was told, what it wrote, what it claimed, and what was seen."""

    feature: str
    job: str
    row: Job | None = None  # None where the store does not know it
    prompt: KeptFile | None = None
    logs: tuple[KeptFile, ...] = ()
    answer: KeptFile | None = None  # its last words
    base: str = ""  # with `commit`: git diff BASE COMMIT shows its work
    commit: str = ""
    claimed: Mapping[str, object] | None = None  # what it says that it did
    claimed_falsely: tuple[FalseWord, ...] = ()  # each claim beside what is the case
    evidence: str = ""  # what our own checks found in its round
    entries: tuple[Fields, ...] = ()  # its trail


def job_view(location: Location, job: str, feature: str | None = None) -> JobView:
    """One run of an agent; the beginning of its id is enough if only one begins so.

    Its trail and files are shown also where the store is lost or damaged: that is when people look for them.
    """
    (slug, id_), entries = read_job(location, job, feature)
    folder = location.jobs / id_
    logs = tuple(kept for name in ("stdout.log", "stderr.log") if (kept := _kept(location, folder / name)))
    prompt, said = (_kept(location, folder / name) for name in ("prompt.xml", ANSWER))
    view = JobView(slug, id_, entries=tuple(entries), prompt=prompt, logs=logs, answer=said)
    try:
        reader = read_store(location)
    except StateConflict:
        return view
    row = reader.job(id_) if reader else None
    if reader is None or row is None:
        return view
    with reader:
        events = [*Follower(reader, slug, after=0).events()]
        base, commit = _commits(events, row)
        claimed, falsely = _claims(reader, slug, id_)
    seen = evidence_of(location, row)
    return view._replace(row=row, base=base, commit=commit, claimed=claimed, claimed_falsely=falsely, evidence=seen)


def _kept(location: Location, path: Path) -> KeptFile | None:
    """A file of a job, if it holds anything."""
    size = path.stat().st_size if path.is_file() else 0
    return KeptFile(str(path if location.copy else path.relative_to(location.root)), size) if size else None


def _commits(events: Sequence[StreamEvent], job: Job) -> tuple[str, str]:
    """The commit that a job began with and the one that holds its work; of a judge, those that it was to compare."""
    before = latest = ""
    has_ended = False
    for event in events:
        if event.kind == "job.ended" and isinstance(event.event, Job) and event.event.id == job.id:
            if job.phase in JUDGES:
                return before, latest
            has_ended = True
        found = _commit_of(event) if event.package == job.wp else ""
        if found and has_ended:
            return latest, found
        before, latest = (latest, found) if found else (before, latest)
    return latest, ""


def _commit_of(event: StreamEvent) -> str:
    match event.event:
        case PackagePrepared(commit) | Harvested(commit) | Written(commit):
            return commit
    return ""


def _claims(reader: Reader, slug: str, job: str) -> tuple[Mapping[str, object] | None, tuple[FalseWord, ...]]:
    """What a job claimed, and which of its claims are false."""
    claimed: Mapping[str, object] | None = None
    falsely: tuple[FalseWord, ...] = ()
    for recorded in reader.events(slug):
        if recorded.kind not in (CLAIMED, CLAIMED_FALSELY):
            continue
        found = read_json(recorded.payload, dict[str, object])
        said = found.get("said")
        if recorded.kind == CLAIMED and isinstance(said, dict) and said.get("job_id") == job:
            claimed = said
        claims = found.get("claims")
        if recorded.kind == CLAIMED_FALSELY and found.get("job") == job and isinstance(claims, list):
            falsely = tuple(FalseWord(claim, truth) for claim, truth in claims)
    return claimed, falsely


def evidence_of(location: Location, job: Job) -> str:
    """What our own checks found in the round of a job; empty where none ran."""
    path = location.folder / "evidence" / job.feature / f"{job.wp}-{job.round}.md"
    if not job.wp or not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(LARGEST_EVIDENCE)
