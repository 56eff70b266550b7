"""An independent account of a feature's evidence, and everything that can happen to a feature: for model checks.

The account is kept from the events alone and knows nothing of how `core/machine/feature_machine` keeps its own. Where the two
disagree about a gate, one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import NamedTuple

import msgspec

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.feature_events import (
    Advanced,
    AnyFeatureEvent,
    Cancelled,
    CommandsRan,
    Completed,
    CompletionRequested,
    DocumentsWritten,
    Escalated,
    FeatureLimits,
    GateChecked,
    JobEnded,
    JobStarted,
    Merged,
    NotMerged,
    PackageEnded,
    PackagesPlanned,
    PackageStarted,
    PhasePlan,
    PullOpened,
    RemarksReceived,
    ReportWritten,
    Resolved,
    Retried,
    ScopeViolated,
    SentBack,
    Started,
    WentBack,
)
from phasegate.core.machine.feature_machine import apply_or_refuse, decide_feature_actions
from phasegate.core.machine.feature_state import ROLE_BY_STEP, Feature, Step
from phasegate.core.machine.package_events import AcceptedRemark, JobEndKind
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Refusal, Stage
from phasegate.core.workflow.phases import PhaseWork

PACKAGES = {"WP01": (), "WP02": ("WP01",)}
SIDE_BY_SIDE: dict[str, tuple[str, ...]] = {"WP01": (), "WP02": ()}
MENDED = {**PACKAGES, "WP03": ()}
KEYS = {
    PhaseWork.PLANNING: "01-requirements",
    PhaseWork.PACKAGES: "06-implementation",
    PhaseWork.REVIEW: "08-code-review",
    PhaseWork.COMMANDS: "11-local-testing",
}
ORDERS: tuple[AnyFeatureEvent, ...] = (
    Advanced(),
    Retried(),
    Escalated("why"),
    Resolved("how"),
    Cancelled("reason"),
    CompletionRequested(),
    *(WentBack(key, "why") for key in KEYS.values()),
)
SEEN = "2026-01-01T00:00:00.000Z"
JUDGES = ("challenge", "review")


class Account(NamedTuple):
    """What was really shown since the round began, and which gates passed, told from the events alone."""

    role: str = ""  # of the open job
    verdict: Verdict | None = None  # a judge's, after the last change of what it judged
    commands: tuple[bool, ...] = ()
    asked_for_word: bool = False
    word: bool = False
    done: frozenset[str] = frozenset()
    planned: frozenset[str] = frozenset()
    passed: int = 0
    archived: bool = False
    merged: bool = False


class World(NamedTuple):
    """A feature and the account beside it. Texts are cut to whether they are there: nothing is decided by them."""

    feature: Feature
    account: Account


def begin(works: tuple[PhaseWork, ...], limits: FeatureLimits, type_: str = "feature") -> World:
    """A workflow of such phases at its start."""
    plan = tuple(PhasePlan(KEYS[work], work, (f"{work}.md",)) for work in works)
    feature = apply_or_refuse(None, Started("001-a", type_, plan, "main", "A", None, limits))
    assert isinstance(feature, Feature)
    return World(_without_texts(feature), Account())


def after(world: World, event: AnyFeatureEvent) -> World | None:
    """The world after an event; None if it was refused."""
    taken = apply_or_refuse(world.feature, event)
    if isinstance(taken, Refusal):
        return None
    return World(_without_texts(taken), _counted(world, event, taken))


def _counted(world: World, event: AnyFeatureEvent, feature: Feature) -> Account:  # noqa: C901 - one case an event
    account = world.account
    fresh = account._replace(verdict=None, commands=(), asked_for_word=False, word=False, role="")
    match event:
        case Advanced() | Retried():
            return fresh
        case Resolved():
            new_round = world.feature.todo == ()
            kept = fresh if new_round else account
            return kept._replace(
                word=kept.word or kept.asked_for_word, asked_for_word=False, role=""
            )
        case WentBack():
            works = [phase.work for phase in feature.plan]
            is_planned = PhaseWork.PACKAGES in works[: feature.workflow.index + 1]
            done = account.done if is_planned else frozenset[str]()
            return fresh._replace(
                passed=feature.workflow.index, done=done, planned=done, archived=False
            )
        case Escalated() | Cancelled():
            return account._replace(asked_for_word=False, role="")
        case JobStarted(_, role):
            return account._replace(role=role)
        case JobEnded(_, end, _, _, verdict):
            return _after_job(account, end, verdict)
        case DocumentsWritten() | ScopeViolated():
            return account._replace(
                verdict=None if account.verdict is Verdict.PASS else account.verdict
            )
        case PackagesPlanned(packages):
            return account._replace(planned=account.planned | frozenset(packages))
        case PackageEnded(package, PackageState.DONE):
            return account._replace(done=account.done | {package}, verdict=None)
        case CommandsRan(results):
            asks = not results and not account.word
            return account._replace(
                commands=tuple(results.values()), verdict=None, asked_for_word=asks
            )
        case GateChecked():
            passed = feature.workflow.stage is Stage.GATE_PASSED
            return account._replace(passed=account.passed + passed)
        case Merged():
            return account._replace(merged=True)
        case _:
            return account


def _after_job(account: Account, end: JobEndKind, verdict: Verdict | None) -> Account:
    ended = account._replace(role="")
    if end is not JobEndKind.DONE:
        return ended
    if account.role in JUDGES:
        return ended._replace(verdict=verdict)
    return ended._replace(archived=verdict is Verdict.PASS) if account.role == "archive" else ended


def is_earned(world: World, event: GateChecked) -> bool:
    """Whether the gate of the phase has all its evidence, by the account."""
    phase, account = world.feature.phase, world.account
    shown = set(phase.artifacts) <= set(event.artifacts) and all(event.checks.values())
    match phase.work:
        case PhaseWork.PACKAGES:
            return shown and bool(account.done) and account.done == account.planned
        case PhaseWork.COMMANDS:
            ran = (
                bool(account.commands) and all(account.commands) and account.verdict is Verdict.PASS
            )
            return shown and (ran or (account.word and not account.commands))
        case _:
            return shown and account.verdict is Verdict.PASS


def _without_texts(feature: Feature) -> Feature:
    """Texts are cut, and rounds counted from a person's last answer: nothing is decided by the number itself.

    What a package that is DONE waited for is forgotten too: it is over.
    """
    own = feature.workflow
    workflow = msgspec.structs.replace(
        own,
        reason=own.reason and "reason",
        round=own.round - own.rounds_before,
        rounds_before=0,
        used=(),
    )
    return msgspec.structs.replace(
        feature,
        workflow=workflow,
        archive_round=feature.archive_round - feature.archive_rounds_before,
        archive_rounds_before=0,
        report=feature.report and "report",
        findings=feature.findings and "findings",
        remediation=feature.remediation and "remediation",
        attested=feature.attested and "attested",
        needs={
            name: () if feature.packages[name] is PackageState.DONE else of
            for name, of in feature.needs.items()
        },
        user_notes="",
        user_notes_index=0,
        decisions="",
        replies="",
        previous_commit="",
        last_answer="",
    )


def key(world: World) -> bytes:
    """The world as a value that can be looked up."""
    account = world.account
    sets = [sorted(account.done), sorted(account.planned)]
    return msgspec.msgpack.encode(
        [world.feature, sets, account._replace(done=frozenset(), planned=frozenset())]
    )


def outcomes(feature: Feature) -> Iterator[AnyFeatureEvent]:  # noqa: C901 - one case a step
    """All that can come of carrying out what is decided."""
    for action in decide_feature_actions(feature):
        match action.step:
            case Step.WRITE | Step.CRITICISE | Step.REVIEW | Step.ARCHIVE:
                yield from _of_job(feature, action.step)
            case Step.HARVEST:
                yield from (
                    DocumentsWritten("c"),
                    DocumentsWritten("c", ("planning.md",)),
                    ScopeViolated(("x: outside",)),
                )
                if feature.written_commit and not feature.closing:
                    yield DocumentsWritten("c", unchanged=True)
            case Step.PLAN:
                yield PackagesPlanned(SIDE_BY_SIDE if feature.limits.parallel > 1 else PACKAGES)
                yield PackagesPlanned({}, ("a cycle",))
            case Step.FIX:
                yield from (PackagesPlanned(MENDED), PackagesPlanned({}, ("no",)))
            case Step.PACKAGES:
                yield from _of_packages(feature, action.packages)
            case Step.COMMANDS:
                yield from (
                    CommandsRan({"test": True}),
                    CommandsRan({"build": True, "test": False}),
                    CommandsRan({}),
                )
                yield CommandsRan({"test": False}, lacking=("test: its program is missing (frob)",))
            case Step.REPORT:
                yield ReportWritten("c")
            case Step.GATE:
                yield from gate_checks(feature.phase.artifacts)
            case Step.RETRY:
                yield Retried()
            case Step.ADVANCE:
                yield Advanced()
            case Step.COMPLETE:
                yield from (CompletionRequested(), CompletionRequested(by_pull_request=True))
            case Step.MERGE:
                yield from (Merged("c"), NotMerged("dirty"), SentBack("red", "test failed"))
            case Step.PUBLISH:
                yield from (PullOpened(1, "url", "c"), NotMerged("refused"))
            case Step.AWAIT:
                yield from (Merged("c"), NotMerged("closed"))
                if not feature.remarks:
                    yield RemarksReceived((AcceptedRemark("1", "", "finding"),))
            case Step.CLEAN_UP:
                yield Completed()
            case Step.STOP if feature.workflow.stage is Stage.BLOCKED:
                yield Resolved("how")


def gate_checks(wanted: tuple[str, ...]) -> Iterator[GateChecked]:
    """Some, all or none of the wanted documents are there."""
    for size in range(len(wanted) + 1):
        yield from (GateChecked(found) for found in combinations(wanted, size))
    yield GateChecked(wanted, {"plan of tasks": True})
    yield GateChecked(wanted, {"plan of tasks": False})
    yield GateChecked(wanted, {"plan of tasks": False}, alike="a name")


def _ends(pauses: bool) -> Iterator[JobEndKind]:
    """How a run can end."""
    return (end for end in JobEndKind if end is not JobEndKind.RATE_LIMITED or pauses)


def _can_pause(feature: Feature) -> bool:
    """A pause at a provider's limit is taken once, in the smaller spaces: it adds nothing else."""
    return bool(feature.limits.retries) and not feature.pauses


def _of_job(feature: Feature, step: Step) -> Iterator[AnyFeatureEvent]:
    if feature.open_job is None:
        yield JobStarted("job", ROLE_BY_STEP[step], "actor")
        return
    job = feature.open_job.job
    yield from (
        JobEnded(job, end, "why", last_seen=SEEN)
        for end in _ends(_can_pause(feature))
        if end is not JobEndKind.DONE
    )
    yield from (
        JobEnded(job, JobEndKind.DONE, verdict=verdict, text="said") for verdict in (None, *Verdict)
    )


def _of_packages(feature: Feature, startable: tuple[str, ...]) -> Iterator[AnyFeatureEvent]:
    for name in startable:
        if feature.packages[name] is not PackageState.DOING:
            yield PackageStarted(name)
    for name, state in feature.packages.items():
        if state is PackageState.DOING:
            yield from (
                PackageEnded(name, end, "why") for end in (PackageState.DONE, PackageState.BLOCKED)
            )


def anything(feature: Feature) -> tuple[AnyFeatureEvent, ...]:
    """Every event of every kind, due or not: what comes late, twice, from elsewhere, or was forged."""
    return _anything(feature.phase.artifacts, _can_pause(feature))


@cache
def _anything(wanted: tuple[str, ...], pauses: bool) -> tuple[AnyFeatureEvent, ...]:
    return tuple(_every_event(wanted, pauses))


def _every_event(wanted: tuple[str, ...], pauses: bool) -> Iterator[AnyFeatureEvent]:
    yield from ORDERS
    yield from gate_checks(wanted)
    yield from (JobStarted("other", role) for role in ("plan", "challenge", "review", "archive"))
    for job in ("job", "other", "foreign"):
        yield from (
            JobEnded(job, end, "why", verdict=Verdict.PASS, last_seen=SEEN) for end in _ends(pauses)
        )
        yield JobEnded(job, JobEndKind.LOST, "a loss of before they were counted")
        yield from (JobEnded(job, JobEndKind.DONE, verdict=verdict) for verdict in (None, *Verdict))
    yield from (
        DocumentsWritten("c"),
        DocumentsWritten("c", ("planning.md",)),
        ScopeViolated(("x",)),
        ReportWritten("c"),
    )
    yield from (
        PackagesPlanned({}),
        PackagesPlanned({"WP01": ("WP09",), "WP02": ()}),
        PackagesPlanned({"WP01": ("WP02",), "WP02": ("WP01",)}),
    )
    for name in ("WP01", "WP02", "WP77"):
        yield PackageStarted(name)
        yield from (PackageEnded(name, state, "why") for state in PackageState)
    yield from (CommandsRan({"test": True}), CommandsRan({"test": False}), CommandsRan({}))
    yield from (Merged("c"), NotMerged("no"), Completed())
    yield from (PullOpened(1, "url", "c"), RemarksReceived((AcceptedRemark("1", "", "finding"),)))
