"""Encode and decode the journal entries about features, packages and agents.

Readers of the record need only this module, not the ones that write the entries.
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
# The answer of the agent, in the folder of its job
ANSWER_FILE = "answer.txt"

SCOPE_ALLOWED = "scope.allowed"
EVIDENCE_ACCEPTED = "evidence.accepted"
FEATURE_STEP = "workflow.happened"
PACKAGE_STEP = "package.happened"
PLAN_LOADED = "plan.loaded"
AGENT_CLAIMED = "agent.claimed"
AGENT_CLAIMED_FALSELY = "agent.claimed-falsely"
STEP_TIMED = "step.timed"
JOB_PROMPTED = "job.prompted"
RECEIPT_WRITTEN = "receipt.written"
ACCEPTANCE_SEALED = "acceptance.sealed"
ACCEPTANCE_CHECKED = "acceptance.checked"
DRIFT_ACCEPTED = "drift.accepted"


class _FeatureStep(msgspec.Struct, frozen=True):
    event: AnyFeatureEvent


class _PackageStep(msgspec.Struct, frozen=True):
    package: str
    event: AnyPackageEvent


class _LoadedPlan(msgspec.Struct, frozen=True):
    # Text of every WPnn.md, by package; later changes of the files have no effect
    documents: dict[str, str]


class AskedQuestion(msgspec.Struct, frozen=True):
    """A recorded question."""

    id: str
    job: str
    work: str
    text: str
    options: tuple[str, ...] = ()


class GivenAnswer(msgspec.Struct, frozen=True):
    """A recorded answer."""

    id: str
    text: str
    by: OrderOrigin = UNKNOWN_ORIGIN


class DriftAcceptance(msgspec.Struct, frozen=True):
    """The tests and code of a requirement that the user accepted, with their hashes."""

    requirement: str
    why: str
    # The commit that the user accepted
    commit: str
    accepted: dict[str, str]
    by: OrderOrigin = UNKNOWN_ORIGIN


def encode_feature_step(event: AnyFeatureEvent) -> NewEvent:
    return NewEvent(FEATURE_STEP, msgspec.json.encode(_FeatureStep(event)))


def read_feature_step(payload: bytes) -> AnyFeatureEvent:
    return read_json(payload, _FeatureStep).event


def encode_package_step(package: str, event: AnyPackageEvent) -> NewEvent:
    return NewEvent(PACKAGE_STEP, msgspec.json.encode(_PackageStep(package, event)))


def read_package_step(payload: bytes) -> tuple[str, AnyPackageEvent]:
    """Decode the package and its event."""
    step = read_json(payload, _PackageStep)
    return step.package, step.event


def encode_plan(documents: dict[str, str]) -> NewEvent:
    return NewEvent(PLAN_LOADED, msgspec.json.encode(_LoadedPlan(documents)))


def read_plan(payload: bytes) -> Mapping[str, str]:
    """Decode the documents of a loaded plan, by package."""
    return read_json(payload, _LoadedPlan).documents


class JobPrompted(msgspec.Struct, frozen=True):
    """The template from which the prompt of a job was made."""

    job: str
    template_sha256: str


def encode_prompted(prompted: JobPrompted) -> NewEvent:
    return NewEvent(JOB_PROMPTED, msgspec.json.encode(prompted))


class StepTimed(msgspec.Struct, frozen=True):
    """The duration of a step in one run: the time for which it was due."""

    # A package; empty for a step of the feature
    work: str
    # Key of the phase, such as 06-implementation
    phase: str
    step: str
    round: int
    started: str
    duration_s: float
    # Seconds per command that the step ran
    parts: Mapping[str, float] = {}


class Notice(msgspec.Struct, frozen=True):
    """Information for the user that does not change the state."""

    # A package; empty for the whole feature
    work: str
    text: str


def encode_step_timed(step: StepTimed) -> NewEvent:
    return NewEvent(STEP_TIMED, msgspec.json.encode(step))


def encode_notice(work: str, text: str) -> NewEvent:
    return NewEvent(NOTICE_KIND, msgspec.json.encode(Notice(work, text)))


def read_step_timed(recorded: RecordedEvent) -> StepTimed | None:
    """Decode the timing of a step, or return None for other kinds."""
    if recorded.kind == STEP_TIMED:
        return read_json(recorded.payload, StepTimed)
    return None


def read_notice(recorded: RecordedEvent) -> Notice | None:
    """Decode a notice, or return None for other kinds."""
    if recorded.kind == NOTICE_KIND:
        return read_json(recorded.payload, Notice)
    return None


class WrittenReceipt(msgspec.Struct, frozen=True):
    """The receipt of a merge, stored as a document and as a git note."""

    commit: str
    # Hash of the stored document
    sha256: str
    # ssh or openpgp; empty if it is not signed
    format: str = ""
    key: str = ""
    # Why it is not signed
    problem: str = ""


class ScopeException(msgspec.Struct, frozen=True):
    """A path outside of its scope that a package may change.

    With `content`, only to the content that the user has approved.
    """

    package: str
    path: str
    reason: str
    by: OrderOrigin = UNKNOWN_ORIGIN
    content: str = ""

    def describe(self) -> str:
        """Describe the exception for reviewers and for the record of decisions."""
        return (
            f"{self.path} was added to the scope by {self.by.person or 'the user'}: {self.reason}"
        )


class EvidenceAcceptance(msgspec.Struct, frozen=True):
    """A finding about the tests of a package that the user has accepted."""

    package: str
    finding: str
    reason: str
    by: OrderOrigin = UNKNOWN_ORIGIN


class AgentClaim(msgspec.Struct, frozen=True):
    """The claims in a job's result; long texts are truncated."""

    package: str
    round: int
    agent_index: int
    agent: str
    # Measured by Phasegate
    duration_s: float
    said: AgentResponse
