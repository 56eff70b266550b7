"""What the record holds of a run besides its events: how long each step took, and what people are to be told."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phasegate.record.rows import Event, Recorded
from phasegate.rules.board import NOTICE
from phasegate.typed import read_json

TIMED = "step.timed"


class StepTimed(msgspec.Struct, frozen=True):
    """A step that was due, from the moment when it became so, in this run, to the one when it was not any longer."""

    work: str  # a package; empty for a step of the feature
    phase: str  # the key, such as 06-implementation
    step: str
    round: int
    started: str
    duration_s: float
    parts: Mapping[str, float] = {}  # of it, in seconds: each command that was run


class Notice(msgspec.Struct, frozen=True):
    """A fact that leads to no other step, and that a person should know."""

    work: str  # a package; empty for the whole feature
    text: str


def timed(step: StepTimed) -> Event:
    return Event(TIMED, msgspec.json.encode(step))


def notice(work: str, text: str) -> Event:
    return Event(NOTICE, msgspec.json.encode(Notice(work, text)))


def read_timed(recorded: Recorded) -> StepTimed | None:
    """The step that a record of the journal tells the time of, if it does."""
    return read_json(recorded.payload, StepTimed) if recorded.kind == TIMED else None


def read_notice(recorded: Recorded) -> Notice | None:
    """The notice that a record of the journal is, if it is one."""
    return read_json(recorded.payload, Notice) if recorded.kind == NOTICE else None
