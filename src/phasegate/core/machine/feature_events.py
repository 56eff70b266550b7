"""What can happen to a feature on its way.

The journal holds these; `core/machine/feature_machine` reads them.
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
    """How often things are tried, and how much goes on at once."""

    revisions: int = 3
    retries: int = 3
    parallel: int = 2
    # Of one run, for limits of the provider
    pauses: int = MAX_PAUSES
    # Of one run
    losses: int = MAX_LOSSES


class PhasePlan(msgspec.Struct, frozen=True):
    """A phase of a workflow as it was when the workflow began.

    A change of the configuration changes no running one.
    """

    key: str
    work: PhaseWork
    artifacts: tuple[str, ...]
    commands: tuple[str, ...] = ()


class FeatureEvent(msgspec.Struct, frozen=True, tag=True, tag_field="event"):
    """Something that happened."""


class Started(FeatureEvent, frozen=True, tag="started"):
    feature: str
    type: str
    plan: tuple[PhasePlan, ...]
    # The branch that the work goes back to
    base: str
    description: str = ""
    noun: str | None = None
    limits: FeatureLimits = FeatureLimits()
    by: OrderOrigin = OrderOrigin()


class JobStarted(FeatureEvent, frozen=True, tag="job-started"):
    job: str
    # Plan, challenge, review or archive
    role: str
    agent: str = ""
    # What a critic or reviewer is shown
    commit: str = ""


class JobEnded(FeatureEvent, frozen=True, tag="job-ended"):
    """How a run ended, and what it said: the verdict is the parsed one."""

    job: str
    end: JobEndKind
    reason: str = ""
    remediation: str = ""
    verdict: Verdict | None = None
    text: str = ""
    # Of a lost job: when it last gave a sign. Without it, a loss of before they were counted
    last_seen: str = ""


class DocumentsWritten(FeatureEvent, frozen=True, tag="written"):
    """What a writer left is on the feature's branch.

    `missing`: documents of the phase that are not there.
    """

    commit: str
    missing: tuple[str, ...] = ()
    # Since the round before, whose findings it was to answer
    unchanged: bool = False


class ScopeViolated(FeatureEvent, frozen=True, tag="strayed"):
    """A writer changed what it may not change; nothing was taken over."""

    violations: tuple[str, ...]


class PackagesPlanned(FeatureEvent, frozen=True, tag="planned"):
    """Packages that are to be carried out, each with those that it waits for.

    Or why there are none.
    """

    packages: Mapping[str, tuple[str, ...]]
    problems: tuple[str, ...] = ()


class PackageStarted(FeatureEvent, frozen=True, tag="package-started"):
    package: str


class PackageEnded(FeatureEvent, frozen=True, tag="package-ended"):
    """A package is DONE or BLOCKED, as its own events say."""

    package: str
    state: PackageState
    reason: str = ""
    remediation: str = ""


class CommandsRan(FeatureEvent, frozen=True, tag="ran"):
    """The commands of a phase, each with whether it passed.

    None at all: a person must say how it was checked.
    """

    results: Mapping[str, bool]
    findings: str = ""
    # On which they ran
    commit: str = ""
    # Those whose program no agent can bring: it is not on this machine
    lacking: tuple[str, ...] = ()


class ReportWritten(FeatureEvent, frozen=True, tag="reported"):
    """The document of the phase that we write ourselves is on the feature's branch."""

    commit: str


class GateChecked(FeatureEvent, frozen=True, tag="gate-checked"):
    """What was found at the gate besides commands and verdict.

    Documents, and checks of what they say.
    """

    artifacts: tuple[str, ...]
    checks: Mapping[str, bool] = {}
    findings: str = ""
    # A name for all that speaks against it; the same name is the same failure
    alike: str = ""


class Advanced(FeatureEvent, frozen=True, tag="advanced"):
    """On to the next phase."""

    by: OrderOrigin = OrderOrigin()


class Retried(FeatureEvent, frozen=True, tag="retried"):
    """One more round of the phase."""

    by: OrderOrigin = OrderOrigin()


class Escalated(FeatureEvent, frozen=True, tag="escalated"):
    why: str
    remediation: str = ""
    by: OrderOrigin = OrderOrigin()


class Resolved(FeatureEvent, frozen=True, tag="resolved"):
    how: str
    by: OrderOrigin = OrderOrigin()


class WentBack(FeatureEvent, frozen=True, tag="went-back"):
    """A person wants the feature in an earlier phase again."""

    phase: str
    why: str
    by: OrderOrigin = OrderOrigin()


class Cancelled(FeatureEvent, frozen=True, tag="cancelled"):
    reason: str
    by: OrderOrigin = OrderOrigin()


class CompletionRequested(FeatureEvent, frozen=True, tag="completion-asked"):
    """A person, or `run --merge`, wants the workflow closed."""

    by: OrderOrigin = OrderOrigin()
    # The merge is made at a forge
    by_pull_request: bool = False


class Merged(FeatureEvent, frozen=True, tag="merged"):
    commit: str


class NotMerged(FeatureEvent, frozen=True, tag="not-merged"):
    reason: str
    remediation: str = ""


class SentBack(FeatureEvent, frozen=True, tag="sent-back"):
    """The work is right by itself and wrong on top of what was merged before it.

    The branch has that now.
    """

    reason: str
    findings: str
    remediation: str = ""


class PullOpened(FeatureEvent, frozen=True, tag="pull-opened"):
    """The work is at the forge, and a pull request shows it: opened now, or brought up to date."""

    number: int
    url: str
    head: str


class RemarksReceived(FeatureEvent, frozen=True, tag="remarked"):
    """People asked for changes at the pull request."""

    remarks: tuple[AcceptedRemark, ...]


class Completed(FeatureEvent, frozen=True, tag="completed"):
    """Everything is tidied up."""

    # Branches that hold what is merged nowhere
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
    | CommandsRan
    | ReportWritten
    | GateChecked
    | Advanced
    | Retried
    | Escalated
    | Resolved
    | WentBack
    | Cancelled
    | CompletionRequested
    | Merged
    | NotMerged
    | SentBack
    | PullOpened
    | RemarksReceived
    | Completed
)
