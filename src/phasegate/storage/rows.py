"""The records in the store: events, and the rows that some events set.

This module imports almost nothing, because `status` uses it.
"""

from __future__ import annotations

from typing import NamedTuple


class NewEvent(NamedTuple):
    """An event to be appended: its kind, and its payload as JSON."""

    kind: str
    payload: bytes


class RecordedEvent(NamedTuple):
    """An event as stored in the journal."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: bytes


class PackageRow(NamedTuple):
    """The state of a work package."""

    feature: str
    id: str
    title: str
    state: str
    round: int = 0
    reason: str = ""
    remediation: str = ""
    since: str = ""
    # Tasks with their last status, such as `1.1=COMPLETED 1.2`
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
    # Paths, one per line
    logs: str = ""
    # As reported by the agent
    tokens: int = 0
    cost_usd: float = 0.0
    # When the rate limit that ended it expires, in seconds since 1970
    retry_at_s: float = 0.0
    # Phase key, such as 06-implementation; `phase` is the role
    workflow_phase: str = ""
    # As configured
    model: str = ""
    # All input tokens, including cached ones
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class WorkflowRow(NamedTuple):
    """The state of a feature's workflow. `phases` has the phase keys, separated by spaces."""

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
    # The commit of the base branch that contains the feature
    merged: str = ""


class GateRow(NamedTuple):
    """One check of a gate.

    `number` is its sequence number within the feature; `reasons` has one reason per line.
    """

    feature: str
    number: int
    phase: str
    round: int
    outcome: str
    reasons: str
    at: str


class TrailSeal(NamedTuple):
    """The end of a job's trail: number of lines and bytes, and the hash of the last line.

    `witnessed` is false if the external log was lost before the trail was compared with it.
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
