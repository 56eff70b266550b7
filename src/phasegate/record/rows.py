"""What the store holds: events, and the rows that some of them set.

An event of a kind in `ROW_OF_KIND` carries a row as its payload. The tables of rows are made from the journal and can
be made from it again, so `audit verify` covers them too.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


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


class Package(msgspec.Struct, frozen=True):
    """Where a work package stands."""

    feature: str
    id: str
    title: str
    state: str
    round: int = 0
    reason: str = ""
    remediation: str = ""
    since: str = ""


class Job(msgspec.Struct, frozen=True):
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


class Seal(msgspec.Struct, frozen=True):
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
ROW_OF_KIND: dict[str, type[Row]] = {
    "package.changed": Package,
    "job.started": Job,
    "job.ended": Job,
    "trail.sealed": Seal,
}
TABLES: dict[type[msgspec.Struct], str] = {Package: "package", Job: "job", Seal: "seal"}


def package_changed(package: Package) -> Event:
    return Event("package.changed", msgspec.json.encode(package))


def job_started(job: Job) -> Event:
    return Event("job.started", msgspec.json.encode(job))


def job_ended(job: Job) -> Event:
    return Event("job.ended", msgspec.json.encode(job))


def trail_sealed(seal: Seal) -> Event:
    return Event("trail.sealed", msgspec.json.encode(seal))


def row_of(feature: str, kind: str, payload: bytes) -> Row | None:
    """The row that an event sets; None for other kinds. A row of another feature, or of the wrong shape, is refused."""
    type_ = ROW_OF_KIND.get(kind)
    if type_ is None:
        return None
    row: Row = msgspec.json.decode(payload, type=type_)
    if row.feature != feature:
        raise ValueError(f"an event of feature {feature} carries a row of feature {row.feature}")
    return row
