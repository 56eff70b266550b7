"""Events that set a row: a workflow, a gate, a package, a job, the end of a trail.

The row is the event's payload. The tables of rows are made from the journal and can be made from it again, so that
`audit verify` covers them too.
"""

from __future__ import annotations

import msgspec

from phasegate.storage.rows import Event, Gate, Job, Package, Row, Seal, WorkflowRow
from phasegate.typed import read_json, read_value

JOB_STARTED = "job.started"
ROW_OF_KIND: dict[str, type[Row]] = {
    "package.changed": Package,
    JOB_STARTED: Job,
    "job.ended": Job,
    "trail.sealed": Seal,
    "workflow.changed": WorkflowRow,
    "gate.judged": Gate,
}


def package_changed(package: Package) -> Event:
    return _event("package.changed", package)


def job_started(job: Job) -> Event:
    return _event(JOB_STARTED, job)


def job_ended(job: Job) -> Event:
    return _event("job.ended", job)


def trail_sealed(seal: Seal) -> Event:
    return _event("trail.sealed", seal)


def workflow_changed(workflow: WorkflowRow) -> Event:
    return _event("workflow.changed", workflow)


def gate_judged(gate: Gate) -> Event:
    return _event("gate.judged", gate)


def _event(kind: str, row: Row) -> Event:
    return Event(kind, msgspec.json.encode(row._asdict()))


def row_of(feature: str, kind: str, payload: bytes) -> Row | None:
    """The row that an event sets; None for other kinds. A row of another feature, or of the wrong shape, is refused."""
    type_ = ROW_OF_KIND.get(kind)
    if type_ is None:
        return None
    fields = read_json(payload, dict[str, object])
    known = type_._field_defaults | fields
    if missing := set(type_._fields) ^ known.keys():
        raise ValueError(f"an event {kind} lacks, or has besides, the field {min(missing)}")
    row: Row = read_value([known[name] for name in type_._fields], type_)
    if row.feature != feature:
        raise ValueError(f"an event of feature {feature} carries a row of feature {row.feature}")
    return row
