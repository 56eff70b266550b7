"""What the store holds: events, and the rows that some of them set.

Loads next to nothing: `status` reads these.
"""

from __future__ import annotations

from typing import NamedTuple


class NewEvent(NamedTuple):
    """Something that happened, to be appended: what kind, and its details as JSON."""

    kind: str
    payload: bytes


class RecordedEvent(NamedTuple):
    """An event as it stands in the journal."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: bytes


class PackageRow(NamedTuple):
    """Where a work package stands."""

    feature: str
    id: str
    title: str
    state: str
    round: int = 0
    reason: str = ""
    remediation: str = ""
    since: str = ""
    # `1.1=COMPLETED 1.2`: each with its last status, if it has one
    tasks: str = ""


class JobRow(NamedTuple):
    """One run of an agent. `ended` and `outcome` are empty while it runs."""

    feature: str
    id: str
    wp: str
    phase: str
    round: int
    agent: str
    started: str
    ended: str = ""
    outcome: str = ""
    prompt_hash: str = ""
    output_hash: str = ""
    # Paths, one a line
    logs: str = ""
    # As the agent reports
    tokens: int = 0
    cost_usd: float = 0.0
    # When the limit that ended it is lifted, in seconds since 1970
    retry_at_s: float = 0.0
    # The key, such as 06-implementation; `phase` is the role
    workflow_phase: str = ""
    # As configured
    model: str = ""
    # All of them, those from a cache too
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class WorkflowRow(NamedTuple):
    """Where a feature's workflow stands. `phases` are the keys, with blanks between them."""

    feature: str
    type: str
    description: str
    base: str
    phases: str
    position: int
    stage: str
    round: int
    reason: str = ""
    remediation: str = ""
    noun: str | None = None
    since: str = ""
    # The commit of its base that holds it
    merged: str = ""


class GateRow(NamedTuple):
    """One check of a gate; `number` counts those of the feature. `reasons` has one a line."""

    feature: str
    number: int
    phase: str
    round: int
    outcome: str
    reasons: str
    at: str


class TrailSeal(NamedTuple):
    """The end of a job's trail: so many lines and bytes, the hash of the last.

    `witnessed` is false when the log outside was lost before the trail could be compared with it.
    """

    feature: str
    job: str
    lines: int
    bytes: int
    hash: str
    witnessed: bool = True


Row = PackageRow | JobRow | WorkflowRow | GateRow | TrailSeal
TABLE_NAMES: dict[type[Row], str] = {
    PackageRow: "package",
    JobRow: "job",
    WorkflowRow: "workflow",
    GateRow: "gate",
    TrailSeal: "seal",
}
