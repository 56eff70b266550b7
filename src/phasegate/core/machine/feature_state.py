"""Where a feature stands, and the steps that lead on from there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.feature_events import FeatureLimits, JobStarted, PhasePlan, PullOpened
from phasegate.core.machine.package_events import AcceptedRemark
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.lifecycle import Workflow
from phasegate.core.workflow.phases import PhaseWork


class Step(StrEnum):
    """What the engine can do next."""

    WRITE = "write"
    HARVEST = "harvest"
    CRITICISE = "criticise"
    PLAN = "plan"
    FIX = "mend"
    PACKAGES = "packages"
    COMMANDS = "commands"
    REVIEW = "review"
    REPORT = "report"
    GATE = "gate"
    RETRY = "retry"
    ADVANCE = "advance"
    COMPLETE = "complete"
    ARCHIVE = "archive"
    MERGE = "merge"
    PUBLISH = "publish"
    AWAIT = "await"
    CLEAN_UP = "tidy"
    STOP = "stop"


STEPS_BY_WORK = {
    PhaseWork.PLANNING: (Step.WRITE, Step.HARVEST, Step.CRITICISE, Step.GATE),
    PhaseWork.PACKAGES: (Step.PLAN, Step.PACKAGES, Step.REPORT, Step.GATE),
    PhaseWork.REVIEW: (Step.REVIEW, Step.REPORT, Step.GATE),
    PhaseWork.COMMANDS: (Step.COMMANDS, Step.REVIEW, Step.REPORT, Step.GATE),
}
FIX_STEPS = (Step.FIX, Step.PACKAGES)
CLOSING_STEPS = (Step.ARCHIVE, Step.HARVEST, Step.MERGE, Step.CLEAN_UP)
FORGE_STEPS = (Step.PUBLISH, Step.AWAIT, Step.CLEAN_UP)
FORGE_CLOSING_STEPS = (Step.ARCHIVE, Step.HARVEST, *FORGE_STEPS)
ROLE_BY_STEP = {
    Step.WRITE: "plan",
    Step.CRITICISE: "challenge",
    Step.REVIEW: "review",
    Step.ARCHIVE: "archive",
}
ATTESTATION = "attestation"


class FeatureAction(msgspec.Struct, frozen=True):
    """Something to do now.

    `packages` are those to be started; `note` is why an agent is asked again.
    """

    step: Step
    packages: tuple[str, ...] = ()
    note: str = ""


class Feature(msgspec.Struct, frozen=True):
    """Where a feature stands, folded from its events."""

    workflow: Workflow
    plan: tuple[PhasePlan, ...]
    base: str
    description: str = ""
    limits: FeatureLimits = FeatureLimits()
    # Of this round, or of the closing
    todo: tuple[Step, ...] = ()
    closing: bool = False
    archive_round: int = 1
    # A person's last answer
    archive_rounds_before: int = 0
    open_job: JobStarted | None = None
    retries: int = 0
    asked_again: bool = False
    pauses: int = 0
    # Of the run that is due, one after the other
    losses: int = 0
    needs: Mapping[str, tuple[str, ...]] = {}
    packages: Mapping[str, PackageState] = {}
    # Why, for each package that is
    blocked: Mapping[str, str] = {}
    # Of this round's critic or reviewer
    verdict: Verdict | None = None
    # Of this round
    commands: Mapping[str, bool] = {}
    # The commit that the commands ran on and the critic or reviewer saw; no other passes the gate
    judged: str = ""
    # There is no command: a person is asked how it was checked
    asks_for_word: bool = False
    # How a person says that it was checked, where there is no command
    attested: str = ""
    # What the commands and the reviewer said: the text of the document that we write
    report: str = ""
    # Of the round before, for the next
    findings: str = ""
    # The commit with what the phase's last writer left, since a person last had a say
    written: str = ""
    # How the gate failed in the round before
    failed_as: str = ""
    # By a person who resolved or went back: for every agent until a gate passes where they spoke
    said: str = ""
    # The phase that has to pass, by its position
    said_at: int = 0
    remediation: str = ""
    # The commit of the base that holds the work
    merged: str = ""
    # From its merge, since a person last had a say
    sent_back: bool = False
    pull: PullOpened | None = None
    # All that were taken up, the ones without an answer last
    remarks: tuple[AcceptedRemark, ...] = ()
    # How many of them
    unanswered: int = 0

    @property
    def phase(self) -> PhasePlan:
        return self.plan[self.workflow.index]

    @property
    def round(self) -> int:
        """The round that is due, of the phase or of the archive."""
        if self.closing:
            return self.archive_round
        return self.workflow.round

    @property
    def last_round(self) -> int:
        """The one after which a person decides."""
        if self.closing:
            before = self.archive_rounds_before
        else:
            before = self.workflow.rounds_before
        return before + self.limits.revisions

    @property
    def can_fix(self) -> bool:
        """Whether this phase may have code changed: only where packages were planned before."""
        return bool(self.packages)


def replace_fields(feature: Feature, **fields: object) -> Feature:
    """The feature with other values in some fields."""
    return msgspec.structs.replace(feature, **fields)


def add_user_note(feature: Feature, note: str, phase_index: int) -> Feature:
    """The feature with what a person said, besides what they said before and no gate has answered."""
    every = "\n".join(part for part in (feature.said, note.strip()) if part)
    return replace_fields(
        feature, said=every, said_at=max(phase_index, feature.said_at if feature.said else 0)
    )


def reset_retry_counters(feature: Feature) -> Feature:
    """The feature with all tries of a run before it."""
    return replace_fields(feature, retries=0, asked_again=False, pauses=0, losses=0)
