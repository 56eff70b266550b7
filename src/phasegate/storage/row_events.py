"""Encode and decode events that set a row: a workflow, gate check, package, job or trail seal.

The row is the event's payload. The tables are derived from the journal and can be rebuilt from it,
so `audit verify` covers them too.
"""

from __future__ import annotations

import msgspec

from phasegate.storage.rows import (
    GateRow,
    JobRow,
    NewEvent,
    PackageRow,
    Row,
    TrailSeal,
    WorkflowRow,
)
from phasegate.typed import read_json, read_value

JOB_STARTED = "job.started"
WORKFLOW_CHANGED = "workflow.changed"
ROW_TYPES_BY_KIND: dict[str, type[Row]] = {
    "package.changed": PackageRow,
    JOB_STARTED: JobRow,
    "job.ended": JobRow,
    "trail.sealed": TrailSeal,
    WORKFLOW_CHANGED: WorkflowRow,
    "gate.judged": GateRow,
}


def package_changed_event(package: PackageRow) -> NewEvent:
    return _make_row_event("package.changed", package)


def job_started_event(job: JobRow) -> NewEvent:
    return _make_row_event(JOB_STARTED, job)


def job_ended_event(job: JobRow) -> NewEvent:
    return _make_row_event("job.ended", job)


def trail_sealed_event(seal: TrailSeal) -> NewEvent:
    return _make_row_event("trail.sealed", seal)


def workflow_changed_event(workflow: WorkflowRow) -> NewEvent:
    return _make_row_event(WORKFLOW_CHANGED, workflow)


def gate_judged_event(gate: GateRow) -> NewEvent:
    return _make_row_event("gate.judged", gate)


def _make_row_event(kind: str, row: Row) -> NewEvent:
    return NewEvent(kind, msgspec.json.encode(row._asdict()))


def decode_row(feature: str, kind: str, payload: bytes) -> Row | None:
    """Return the row that an event sets, or None for other kinds of events.

    Raise an error for a row of another feature or with the wrong fields.
    """
    type_ = ROW_TYPES_BY_KIND.get(kind)
    if type_ is None:
        return None

    fields = read_json(payload, dict[str, object])
    known = type_._field_defaults | fields
    if missing := set(type_._fields) ^ known.keys():
        raise ValueError(f"a {kind} event has a missing or unexpected field: {min(missing)}")

    row: Row = read_value([known[name] for name in type_._fields], type_)
    if row.feature != feature:
        raise ValueError(f"an event of feature {feature} carries a row of feature {row.feature}")

    return row
