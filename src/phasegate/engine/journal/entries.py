"""The entries of the journal that tell of features, packages and agents.

Their kinds, and how they are read.

Whoever only reads the record needs this, and none of the workshops that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phasegate.core.answer.json_result import AgentResponse
from phasegate.core.display.status import NOTICE_KIND
from phasegate.core.machine.feature_events import AnyFeatureEvent
from phasegate.core.machine.package_events import AnyPackageEvent
from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
from phasegate.storage.rows import NewEvent, RecordedEvent
from phasegate.typed import read_json

LOG_FILES = ("stdout.log", "stderr.log")


SCOPE_ALLOWED = "scope.allowed"

FEATURE_STEP = "workflow.happened"
PACKAGE_STEP = "package.happened"
PLAN_LOADED = "plan.loaded"
AGENT_CLAIMED = "agent.claimed"
AGENT_CLAIMED_FALSELY = "agent.claimed-falsely"
# In the folder of a job: the last words of its agent
ANSWER_FILE = "answer.txt"


class _FeatureStep(msgspec.Struct, frozen=True):
    event: AnyFeatureEvent


class _PackageStep(msgspec.Struct, frozen=True):
    package: str
    event: AnyPackageEvent


class _LoadedPlan(msgspec.Struct, frozen=True):
    # The text of each WPnn.md, by package: what is run is what was loaded
    documents: dict[str, str]


class AskedQuestion(msgspec.Struct, frozen=True):
    """A question as the journal keeps it."""

    id: str
    job: str
    work: str
    text: str
    options: tuple[str, ...] = ()


class GivenAnswer(msgspec.Struct, frozen=True):
    """An answer as the journal keeps it."""

    id: str
    text: str
    by: OrderOrigin = UNKNOWN_ORIGIN


def encode_feature_step(event: AnyFeatureEvent) -> NewEvent:
    return NewEvent(FEATURE_STEP, msgspec.json.encode(_FeatureStep(event)))


def read_feature_step(payload: bytes) -> AnyFeatureEvent:
    return read_json(payload, _FeatureStep).event


def encode_package_step(package: str, event: AnyPackageEvent) -> NewEvent:
    return NewEvent(PACKAGE_STEP, msgspec.json.encode(_PackageStep(package, event)))


def read_package_step(payload: bytes) -> tuple[str, AnyPackageEvent]:
    """The package, and what happened to it."""
    step = read_json(payload, _PackageStep)
    return step.package, step.event


def encode_plan(documents: dict[str, str]) -> NewEvent:
    return NewEvent(PLAN_LOADED, msgspec.json.encode(_LoadedPlan(documents)))


def read_plan(payload: bytes) -> Mapping[str, str]:
    """The documents of a plan on record."""
    return read_json(payload, _LoadedPlan).documents


STEP_TIMED = "step.timed"


class StepTimed(msgspec.Struct, frozen=True):
    """A step that was due, from the moment when it became so, in this run, to the one when it was
    not any longer.
    """

    # A package; empty for a step of the feature
    work: str
    # The key, such as 06-implementation
    phase: str
    step: str
    round: int
    started: str
    duration_s: float
    # Of it, in seconds: each command that was run
    parts: Mapping[str, float] = {}


class Notice(msgspec.Struct, frozen=True):
    """A fact that leads to no other step, and that a person should know."""

    # A package; empty for the whole feature
    work: str
    text: str


def encode_step_timed(step: StepTimed) -> NewEvent:
    return NewEvent(STEP_TIMED, msgspec.json.encode(step))


def encode_notice(work: str, text: str) -> NewEvent:
    return NewEvent(NOTICE_KIND, msgspec.json.encode(Notice(work, text)))


def read_step_timed(recorded: RecordedEvent) -> StepTimed | None:
    """The step that a record of the journal tells the time of, if it does."""
    if recorded.kind == STEP_TIMED:
        return read_json(recorded.payload, StepTimed)
    return None


def read_notice(recorded: RecordedEvent) -> Notice | None:
    """The notice that a record of the journal is, if it is one."""
    if recorded.kind == NOTICE_KIND:
        return read_json(recorded.payload, Notice)
    return None


class ScopeException(msgspec.Struct, frozen=True):
    """A path that a package may change besides its scope.

    With `content`, only to what a person saw.
    """

    package: str
    path: str
    reason: str
    by: OrderOrigin = UNKNOWN_ORIGIN
    content: str = ""


class AgentClaim(msgspec.Struct, frozen=True):
    """What a job's result says; long prose is cut."""

    package: str
    round: int
    agent_index: int
    agent: str
    # By our clock
    duration_s: float
    said: AgentResponse
