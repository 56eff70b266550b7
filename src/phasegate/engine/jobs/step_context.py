"""What steps may know of the record, read from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from phasegate.core.audit.trail import TrailEvent
from phasegate.core.machine.package_events import AttemptSelected, PackageJobStarted
from phasegate.core.workflow.spending import Spending
from phasegate.engine.jobs.step import CHECKS_RAN, StepContext, UnitWorker
from phasegate.engine.journal.artifacts import read_artifacts
from phasegate.engine.journal.asking import read_answers
from phasegate.engine.journal.entries import (
    AGENT_CLAIMED,
    PACKAGE_STEP,
    PLAN_LOADED,
    SCOPE_ALLOWED,
    AgentClaim,
    ScopeException,
    read_package_step,
    read_plan,
)
from phasegate.engine.journal.feature import read_state_view
from phasegate.engine.project.ports import RecordReader
from phasegate.storage.row_events import JOB_STARTED
from phasegate.storage.state_view import format_state
from phasegate.typed import read_json


class _JobStart(msgspec.Struct):
    wp: str


def read_step_context(record: RecordReader, slug: str, package: str = "") -> StepContext:
    """What the steps of a feature, or of one of its packages, may know now."""
    begun = ""
    documents: Mapping[str, str] = {}
    allowed: list[ScopeException] = []
    claims: list[AgentClaim] = []
    started: dict[int, PackageJobStarted] = {}
    checked: list[tuple[str, TrailEvent]] = []

    for recorded in record.events(slug):
        begun = begun or recorded.ts
        if recorded.kind == PLAN_LOADED and not package:
            documents = read_plan(recorded.payload)
        elif recorded.kind == SCOPE_ALLOWED:
            allowed.append(read_json(recorded.payload, ScopeException))
        elif recorded.kind == AGENT_CLAIMED:
            claims.append(read_json(recorded.payload, AgentClaim))
        elif recorded.kind == CHECKS_RAN and not package:
            checked += read_json(recorded.payload, list[tuple[str, TrailEvent]])
        elif recorded.kind == JOB_STARTED and read_json(recorded.payload, _JobStart).wp == package:
            # They are in the trail of this job
            checked = []
        elif package and recorded.kind == PACKAGE_STEP:
            started = _update_implementers(started, recorded.payload, package)

    return StepContext(
        started_at=begun,
        package_documents=documents,
        packages=() if package else tuple(record.packages(slug)),
        scope_exceptions=tuple(one for one in allowed if one.package == package),
        claims=tuple(one for one in claims if package in ("", one.package)),
        spent=Spending() if package else record.total_spent(slug),
        chain_head="" if package else record.chain_head().hash,
        artifacts=read_artifacts(record, slug, package),
        workers=tuple(
            _list_implementers(record, started) if package else _find_last_worker(record, slug)
        ),
        check_entries=tuple(checked),
        state_json=format_state(read_state_view(record, slug)),
        user_answers=read_answers(record, slug, package),
    )


def _update_implementers(
    started: dict[int, PackageJobStarted], payload: bytes, package: str
) -> dict[int, PackageJobStarted]:
    """The last implementers of a package, by the index of their agents.

    Of a contest, the one that was taken.
    """
    if b"job-started" not in payload and b"attempt-taken" not in payload:
        return started

    name, event = read_package_step(payload)
    match event:
        case PackageJobStarted(role="implement") if name == package:
            of_round = {index: one for index, one in started.items() if one.round == event.round}
            return {**of_round, event.agent_index: event}
        case AttemptSelected() if name == package and event.attempt in started:
            return {0: started[event.attempt]}

    return started


def _list_implementers(
    record: RecordReader, started: Mapping[int, PackageJobStarted]
) -> Iterator[UnitWorker]:
    for index, one in sorted(started.items()):
        if (row := record.find_job(one.job)) is not None:
            yield UnitWorker(one.job, row.agent, index)


def _find_last_worker(record: RecordReader, slug: str) -> Iterator[UnitWorker]:
    own = [row for row in record.jobs(slug) if not row.wp]
    yield from (UnitWorker(row.id, row.agent) for row in own[-1:])
