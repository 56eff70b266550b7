"""What steps may know of the record, read from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from phasegate.core.audit.trail import Done
from phasegate.core.machine.package_events import AttemptTaken, PackageJobStarted
from phasegate.core.workflow.spending import Spent
from phasegate.engine.jobs.step import CHECKED, Known, UnitWorker
from phasegate.engine.journal.artifacts import kept_artifacts
from phasegate.engine.journal.asking import answers_for
from phasegate.engine.journal.entries import (
    CLAIMED,
    PACKAGE_STEP,
    PLAN_LOADED,
    SCOPE_ALLOWED,
    Claimed,
    ScopeException,
    read_package_step,
    read_plan,
)
from phasegate.engine.journal.feature import state_of
from phasegate.engine.project.ports import RecordReader
from phasegate.storage.row_events import JOB_STARTED
from phasegate.storage.state_view import state_text
from phasegate.typed import read_json


class _JobStart(msgspec.Struct):
    wp: str


def read_known(record: RecordReader, slug: str, package: str = "") -> Known:
    """What the steps of a feature, or of one of its packages, may know now."""
    begun = ""
    documents: Mapping[str, str] = {}
    allowed: list[ScopeException] = []
    claims: list[Claimed] = []
    started: dict[int, PackageJobStarted] = {}
    checked: list[tuple[str, Done]] = []
    for recorded in record.events(slug):
        begun = begun or recorded.ts
        if recorded.kind == PLAN_LOADED and not package:
            documents = read_plan(recorded.payload)
        elif recorded.kind == SCOPE_ALLOWED:
            allowed.append(read_json(recorded.payload, ScopeException))
        elif recorded.kind == CLAIMED:
            claims.append(read_json(recorded.payload, Claimed))
        elif recorded.kind == CHECKED and not package:
            checked += read_json(recorded.payload, list[tuple[str, Done]])
        elif recorded.kind == JOB_STARTED and read_json(recorded.payload, _JobStart).wp == package:
            checked = []  # they are in the trail of this job
        elif package and recorded.kind == PACKAGE_STEP:
            started = _at_work(started, recorded.payload, package)
    return Known(
        begun,
        documents,
        () if package else tuple(record.packages(slug)),
        tuple(one for one in allowed if one.package == package),
        tuple(one for one in claims if package in ("", one.package)),
        Spent() if package else record.spent(slug),
        "" if package else record.head().hash,
        kept_artifacts(record, slug, package),
        tuple(_implementers(record, started) if package else _last_worker(record, slug)),
        tuple(checked),
        state_text(state_of(record, slug)),
        answers_for(record, slug, package),
    )


def _at_work(started: dict[int, PackageJobStarted], payload: bytes, package: str) -> dict[int, PackageJobStarted]:
    """The last implementers of a package, by the index of their agents; of a contest, the one that was taken."""
    if b"job-started" not in payload and b"attempt-taken" not in payload:
        return started
    name, event = read_package_step(payload)
    match event:
        case PackageJobStarted(role="implement") if name == package:
            of_round = {index: one for index, one in started.items() if one.round == event.round}
            return {**of_round, event.agent_index: event}
        case AttemptTaken() if name == package and event.attempt in started:
            return {0: started[event.attempt]}
    return started


def _implementers(record: RecordReader, started: Mapping[int, PackageJobStarted]) -> Iterator[UnitWorker]:
    for index, one in sorted(started.items()):
        if (row := record.job(one.job)) is not None:
            yield UnitWorker(one.job, row.agent, index)


def _last_worker(record: RecordReader, slug: str) -> Iterator[UnitWorker]:
    own = [row for row in record.jobs(slug) if not row.wp]
    yield from (UnitWorker(row.id, row.agent) for row in own[-1:])
