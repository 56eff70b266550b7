"""Events of a feature, as stored in its journal.

`core/machine/feature_machine` folds them into a `Feature`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.package_events import MAX_LOSSES, MAX_PAUSES, AcceptedRemark, JobEndKind
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.core.workflow.phases import PhaseWork


class FeatureLimits(msgspec.Struct, frozen=True):
    """Limits on rounds, retries and parallel packages."""

    revisions: int = 3
    retries: int = 3
    parallel: int = 2
    # Retries of one job after a rate limit
    pauses: int = MAX_PAUSES
    # Retries of one job after its process was lost
    losses: int = MAX_LOSSES


class PhasePlan(msgspec.Struct, frozen=True):
    """A phase of a workflow, as configured when the workflow started.

    Later changes of the configuration do not affect a running workflow.
    """

    key: str
    work: PhaseWork
    artifacts: tuple[str, ...]
    commands: tuple[str, ...] = ()


class FeatureEvent(msgspec.Struct, frozen=True, tag=True, tag_field="event"):
    """Base class of all feature events."""


class Started(FeatureEvent, frozen=True, tag="started"):
    feature: str
    type: str
    plan: tuple[PhasePlan, ...]
    # The branch into which the feature is merged
    base: str
    description: str = ""
    noun: str | None = None
    limits: FeatureLimits = FeatureLimits()
    by: OrderOrigin = OrderOrigin()
    # Phases and reviews that the size of the change does not need are left out. Journals written
    # before this field was added ran everything.
    fits_size: bool = False


class JobStarted(FeatureEvent, frozen=True, tag="job-started"):
    job: str
    # plan, challenge, review or archive
    role: str
    agent: str = ""
    # The commit that a critic or reviewer evaluates
    commit: str = ""


class JobEnded(FeatureEvent, frozen=True, tag="job-ended"):
    """How a job ended, with the parsed verdict and text of its answer."""

    job: str
    end: JobEndKind
    reason: str = ""
    remediation: str = ""
    verdict: Verdict | None = None
    text: str = ""
    # Lost jobs only: time of the last output. Empty in journals written before losses were counted
    last_seen: str = ""


class DocumentsWritten(FeatureEvent, frozen=True, tag="written"):
    """The changes of a writer were committed to the feature branch.

    `missing` lists required documents of the phase that do not exist.
    """

    commit: str
    missing: tuple[str, ...] = ()
    # True if nothing changed since the previous round, although it had findings to address
    unchanged: bool = False
    # Number of the required documents that exist. 0 in journals written before it was counted
    documents: int = 0


class ScopeViolated(FeatureEvent, frozen=True, tag="strayed"):
    """A writer changed files outside its scope; nothing was committed."""

    violations: tuple[str, ...]


class PackagesPlanned(FeatureEvent, frozen=True, tag="planned"):
    """The planned packages, each with its dependencies; or the problems that prevent planning."""

    packages: Mapping[str, tuple[str, ...]]
    problems: tuple[str, ...] = ()


class PackageStarted(FeatureEvent, frozen=True, tag="package-started"):
    package: str


class PackageEnded(FeatureEvent, frozen=True, tag="package-ended"):
    """A package reached DONE or BLOCKED, according to its own journal."""

    package: str
    state: PackageState
    reason: str = ""
    remediation: str = ""
    # The commit that passed its review
    commit: str = ""


class PhasesFolded(FeatureEvent, frozen=True, tag="folded"):
    """The quick scan estimated a small, low-risk change: one phase plans it."""

    estimate: str


class ReviewWaived(FeatureEvent, frozen=True, tag="review-waived"):
    """The review of the only package covers the whole feature: nothing was added since."""

    package: str
    commit: str


class CommandsRan(FeatureEvent, frozen=True, tag="ran"):
    """Results of the commands of a phase, by name.

    An empty mapping means that no command is configured: the user must attest how it was checked.
    """

    results: Mapping[str, bool]
    findings: str = ""
    # The commit that the commands ran on
    commit: str = ""
    # Commands whose program is not installed here; no agent can fix that
    lacking: tuple[str, ...] = ()
    # False if the evidence is green and leaves a reviewer nothing to decide. Journals written
    # before this field was added always asked for a review.
    needs_review: bool = True


class ReportWritten(FeatureEvent, frozen=True, tag="reported"):
    """The generated report of the phase was committed to the feature branch."""

    commit: str


class GateChecked(FeatureEvent, frozen=True, tag="gate-checked"):
    """Gate evidence other than command results and verdict: documents and content checks."""

    artifacts: tuple[str, ...]
    checks: Mapping[str, bool] = {}
    findings: str = ""
    # Key of the whole set of findings; equal keys mean the same failure
    alike: str = ""


class Advanced(FeatureEvent, frozen=True, tag="advanced"):
    """The workflow moved to the next phase."""

    by: OrderOrigin = OrderOrigin()


class Retried(FeatureEvent, frozen=True, tag="retried"):
    """Another round of the phase was ordered."""

    by: OrderOrigin = OrderOrigin()


class Escalated(FeatureEvent, frozen=True, tag="escalated"):
    why: str
    remediation: str = ""
    by: OrderOrigin = OrderOrigin()


class Resolved(FeatureEvent, frozen=True, tag="resolved"):
    how: str
    by: OrderOrigin = OrderOrigin()


class WentBack(FeatureEvent, frozen=True, tag="went-back"):
    """The user moved the feature back to an earlier phase."""

    phase: str
    why: str
    by: OrderOrigin = OrderOrigin()


class Amended(FeatureEvent, frozen=True, tag="amended"):
    """The user changed a requirement; packages that implement it are planned again."""

    requirement: str
    text: str
    before: str = ""
    by: OrderOrigin = OrderOrigin()


class Cancelled(FeatureEvent, frozen=True, tag="cancelled"):
    reason: str
    by: OrderOrigin = OrderOrigin()


class CompletionRequested(FeatureEvent, frozen=True, tag="completion-asked"):
    """The user, or `run --merge`, asked to complete the workflow."""

    by: OrderOrigin = OrderOrigin()
    # True if the merge happens through a pull request at a forge
    by_pull_request: bool = False


class Merged(FeatureEvent, frozen=True, tag="merged"):
    commit: str


class NotMerged(FeatureEvent, frozen=True, tag="not-merged"):
    reason: str
    remediation: str = ""


class SentBack(FeatureEvent, frozen=True, tag="sent-back"):
    """The branch passes alone but fails on top of newer merges.

    The feature branch now contains those merges, so that the failure can be fixed there.
    """

    reason: str
    findings: str
    remediation: str = ""


class PullOpened(FeatureEvent, frozen=True, tag="pull-opened"):
    """The branch was pushed, and its pull request was opened or updated."""

    number: int
    url: str
    head: str


class PullWaits(FeatureEvent, frozen=True, tag="pull-waits"):
    """The pull request waits for another reason than before."""

    reason: str
    # It is in the merge queue
    queued: bool = False
    # Waiting alone will not help
    needs_user: bool = False


class RemarksReceived(FeatureEvent, frozen=True, tag="remarked"):
    """Reviewers asked for changes on the pull request."""

    remarks: tuple[AcceptedRemark, ...]


class Completed(FeatureEvent, frozen=True, tag="completed"):
    """The workflow is completed and cleaned up."""

    # Branches with unmerged commits, which were kept
    kept: tuple[str, ...] = ()


AnyFeatureEvent = (
    Started
    | JobStarted
    | JobEnded
    | DocumentsWritten
    | ScopeViolated
    | PackagesPlanned
    | PackageStarted
    | PackageEnded
    | PhasesFolded
    | ReviewWaived
    | CommandsRan
    | ReportWritten
    | GateChecked
    | Advanced
    | Retried
    | Escalated
    | Resolved
    | WentBack
    | Amended
    | Cancelled
    | CompletionRequested
    | Merged
    | NotMerged
    | SentBack
    | PullOpened
    | PullWaits
    | RemarksReceived
    | Completed
)
