"""What the store holds: events, and the rows that some of them set. Loads next to nothing: `status` reads these."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """Something that happened, to be appended: what kind, and its details as JSON."""

    kind: str
    payload: bytes


class Recorded(NamedTuple):
    """An event as it stands in the journal."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    payload: bytes


class Package(NamedTuple):
    """Where a work package stands."""

    feature: str
    id: str
    title: str
    state: str
    round: int = 0
    reason: str = ""
    remediation: str = ""
    since: str = ""


class Job(NamedTuple):
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
    logs: str = ""  # paths, one a line


class Seal(NamedTuple):
    """The end of a job's trail: so many lines and bytes, the hash of the last.

    `witnessed` is false when the log outside was lost before the trail could be compared with it.
    """

    feature: str
    job: str
    lines: int
    bytes: int
    hash: str
    witnessed: bool = True


Row = Package | Job | Seal
TABLES: dict[type[Row], str] = {Package: "package", Job: "job", Seal: "seal"}
