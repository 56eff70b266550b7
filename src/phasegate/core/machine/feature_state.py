"""State of a feature and its steps."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.feature_events import (
    FeatureLimits,
    JobStarted,
    PhasePlan,
    PullOpened,
    PullWaits,
)
from phasegate.core.machine.package_events import AcceptedRemark
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Workflow
from phasegate.core.workflow.phases import PhaseWork


class Step(StrEnum):
    """A step that the engine can run."""

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
    """An action to run now.

    `packages` are the packages to start; `note` is the reason why an agent is asked again.
    """

    step: Step
    packages: tuple[str, ...] = ()
    note: str = ""


class Feature(msgspec.Struct, frozen=True):
    """State of a feature, folded from its events.

    The fleet sends it through Temporal, so the encoded names and types of the fields must not
    change; `name=` keeps the encoded name of a field that was renamed.
    """

    workflow: Workflow
    plan: tuple[PhasePlan, ...]
    base: str
    description: str = ""
    limits: FeatureLimits = FeatureLimits()
    # Remaining steps of this round, or of the closing sequence
    todo: tuple[Step, ...] = ()
    closing: bool = False
    archive_round: int = 1
    # Archive rounds before the user's last order: the limit counts from there
    archive_rounds_before: int = 0
    open_job: JobStarted | None = None
    # Counters of the current job, see `retry.count_retry`
    retries: int = 0
    asked_again: bool = False
    pauses: int = 0
    losses: int = 0
    # Dependencies of each package
    needs: Mapping[str, tuple[str, ...]] = {}
    packages: Mapping[str, PackageState] = {}
    # Reason for each blocked package
    blocked: Mapping[str, str] = {}
    # Verdict of this round's critic or reviewer
    verdict: Verdict | None = None
    # Results of this round's commands, by name
    commands: Mapping[str, bool] = {}
    # Phases and reviews that the size of the change does not need are left out
    fits_size: bool = False
    # Commits of the finished packages that passed their reviews
    reviewed_commits: Mapping[str, str] = {}
    # The evidence of this round leaves a reviewer nothing to decide
    is_review_waived: bool = False
    # Commit that the commands and the critic or reviewer evaluated; no other commit passes the gate
    evaluated_commit: str = msgspec.field(default="", name="judged")
    # No command is configured: the user is asked how it was checked
    awaits_attestation: bool = msgspec.field(default=False, name="asks_for_word")
    # The user's description of how it was checked, if no command is configured
    attested: str = ""
    # Output of commands and reviewer: the text of the generated report
    report: str = ""
    # Findings of the previous round, for the next one
    findings: str = ""
    # The writer's answer of this round
    replies: str = ""
    # The commit that was evaluated in the previous round of the phase
    previous_commit: str = ""
    # The answer of the last job, if it could not be used
    last_answer: str = ""
    # Commit of the phase's last writer, since the user's last order
    written_commit: str = msgspec.field(default="", name="written")
    # `alike` key of the previous failed gate
    previous_failure_key: str = msgspec.field(default="", name="failed_as")
    # Notes of the user from `resolve` and `back`; passed to every agent until the gate of the phase
    # `user_notes_index` passes
    user_notes: str = msgspec.field(default="", name="said")
    user_notes_index: int = msgspec.field(default=0, name="said_at")
    # All notes of the user: they apply to every later agent, even after the gate
    decisions: str = ""
    remediation: str = ""
    # Commit of the base branch that contains the feature
    merged: str = ""
    # True if a merge failed on top of newer merges, since the user's last order
    sent_back: bool = False
    pull: PullOpened | None = None
    # All accepted remarks; the last `unanswered` ones have no reply yet
    remarks: tuple[AcceptedRemark, ...] = ()
    unanswered: int = 0
    # Why the pull request waits, since it was published
    pull_wait: PullWaits | None = None
    # Rounds that remarks have caused, since the user's last order
    remark_rounds: int = 0

    @property
    def is_published(self) -> bool:
        """Return True if a pull request is open, as far as is known."""
        return self.pull is not None and not self.merged

    @property
    def phase(self) -> PhasePlan:
        return self.plan[self.workflow.index]

    @property
    def round(self) -> int:
        """Current round of the phase or of the archive step."""
        if self.closing:
            return self.archive_round
        return self.workflow.round

    @property
    def last_round(self) -> int:
        """Last round before the user has to decide."""
        if self.closing:
            before = self.archive_rounds_before
        else:
            before = self.workflow.rounds_before
        return before + self.limits.revisions

    @property
    def sole_reviewed_package(self) -> str:
        """The only package of the feature, if it is finished and reviewed; otherwise empty."""
        if len(self.packages) != 1 or not self.fits_size:
            return ""

        name = next(iter(self.packages))
        if self.packages[name] is PackageState.DONE and self.reviewed_commits.get(name):
            return name
        return ""

    @property
    def can_fix(self) -> bool:
        """Whether code may be changed in this phase: only after packages were planned."""
        return bool(self.packages)


def replace_fields(feature: Feature, **fields: object) -> Feature:
    """Return a copy of the feature with some fields replaced."""
    return msgspec.structs.replace(feature, **fields)


def add_user_note(feature: Feature, note: str, phase_index: int) -> Feature:
    """Append a user note; notes are kept until the gate of their phase passes."""
    note = note.strip()
    notes = "\n".join(part for part in (feature.user_notes, note) if part)
    decisions = feature.decisions
    if note and not f"\n{decisions}".endswith(f"\n{note}"):
        decisions = f"{decisions}\n{note}".strip()
    if feature.user_notes:
        phase_index = max(phase_index, feature.user_notes_index)
    return replace_fields(
        feature, user_notes=notes, user_notes_index=phase_index, decisions=decisions
    )


def reset_retry_counters(feature: Feature) -> Feature:
    """Return the feature with all retries available again."""
    return replace_fields(feature, retries=0, asked_again=False, pauses=0, losses=0, last_answer="")
