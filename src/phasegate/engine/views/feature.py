"""Everything about one feature, folded from its journal: gates, packages, timeline, orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from phasegate.core.display.event_lines import list_allowed_orders, select_open_findings
from phasegate.core.display.next_steps import next_steps
from phasegate.core.display.status import FeatureCard, PhaseCard, derive_standing
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.phase_transitions import build_own_state, build_state_view
from phasegate.core.workflow.spending import Spending
from phasegate.engine.journal.entries import StepTimed
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.engine.views.overview import (
    PackageCard,
    feature_card,
    package_cards,
    require_reader,
    unknown_feature_error,
)
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import GateRow


class FeatureStatusView(NamedTuple):
    """The state of a feature, the due decision of the user, and the allowed orders."""

    feature: str
    type: str
    phase: str
    stage: str
    standing: str
    round: int
    reason: str
    findings: str
    remediation: str
    branch: str
    base: str
    # State by package
    packages: dict[str, str]
    # Commands that are allowed now
    orders: tuple[str, ...]
    # Phases that `back` accepts
    earlier: tuple[str, ...]
    # URL
    pull_request: str = ""


class GateRound(NamedTuple):
    """One check of a phase's gate."""

    round: int
    outcome: str
    reasons: tuple[str, ...]
    at: str


class PhaseView(NamedTuple):
    """A phase with every check of its gate, oldest first."""

    key: str
    name: str
    gate: str
    status: str
    rounds: tuple[GateRound, ...]


class TimelineBar(NamedTuple):
    """An interval on the timeline; a gate check has no length.

    `ended` is empty while it lasts.
    """

    # agent, gate or step
    kind: str
    # Role of the agent, gate or step
    name: str
    phase: str
    package: str
    round: int
    agent: str
    job: str
    started: str
    ended: str
    outcome: str
    # For a step: duration of each command
    parts_s: dict[str, float] | None = None


class EventLine(NamedTuple):
    """The line that was reported for an event."""

    position: int
    ts: str
    phase: str
    package: str
    line: str


class FeatureView(NamedTuple):
    """Everything about one feature."""

    card: FeatureCard
    phases: tuple[PhaseView, ...]
    packages: tuple[PackageCard, ...]
    # Ordered by start
    bars: tuple[TimelineBar, ...]
    now: FeatureStatusView
    spent: Spending
    # Number of the last event
    seq: int
    # Reported lines, oldest first
    lines: tuple[EventLine, ...] | None = None


def feature_status_view(feature: Feature, *, is_held: bool = False) -> FeatureStatusView:
    """Return the status of a feature at the end of a run or an order."""
    workflow = feature.workflow
    standing = derive_standing(
        workflow.stage, is_last_phase=workflow.is_last_phase, has_worker=is_held
    )
    return FeatureStatusView(
        feature=workflow.feature,
        type=workflow.type,
        phase=workflow.phase,
        stage=str(workflow.stage),
        standing=standing,
        round=workflow.round,
        reason=workflow.reason,
        findings=select_open_findings(feature),
        remediation=feature.remediation,
        branch=f"feat/{workflow.feature}",
        base=feature.base,
        packages={name: str(state) for name, state in feature.packages.items()},
        orders=list_allowed_orders(feature),
        earlier=workflow.phases[: workflow.index],
        pull_request=feature.pull.url if feature.pull else "",
    )


def feature_view(reader: StoreReader, slug: str, *, with_lines: bool = False) -> FeatureView | None:
    """Return everything about a feature, or None without a workflow.

    `with_lines`: include the reported event lines.
    """
    row = next((row for row in reader.workflows() if row.feature == slug), None)
    if row is None:
        return None

    # Read the worker before the journal: a worker that has ended has recorded everything.
    card = feature_card(reader, row)
    follower = JournalFollower(reader, slug, after=0)
    events = [*follower.read_events()]
    gates = reader.gates(slug)
    if follower.feature is None:
        return None

    lines = (
        EventLine(position=e.position, ts=e.ts, phase=e.phase, package=e.package, line=e.line)
        for e in events
        if e.line
    )

    return FeatureView(
        card=card,
        phases=tuple(_phase_view(phase, gates) for phase in card.phases),
        packages=package_cards(reader, slug),
        bars=tuple(sorted(_collect_bars(reader, slug, events, gates), key=lambda bar: bar.started)),
        now=feature_status_view(follower.feature, is_held=card.worker is not None),
        spent=reader.total_spent(slug),
        seq=events[-1].seq,
        lines=tuple(lines) if with_lines else None,
    )


def _phase_view(phase: PhaseCard, gates: Sequence[GateRow]) -> PhaseView:
    rounds = (
        GateRound(gate.round, gate.outcome, tuple(gate.reasons.splitlines()), gate.at)
        for gate in gates
        if gate.phase == phase.key
    )
    return PhaseView(
        key=phase.key, name=phase.name, gate=phase.gate, status=phase.status, rounds=tuple(rounds)
    )


def agent_bars(reader: StoreReader, slug: str) -> Iterator[TimelineBar]:
    """Yield the agents' jobs as bars of the timeline."""
    for job in reader.jobs(slug):
        yield TimelineBar(
            kind="agent",
            name=job.phase,
            phase=job.workflow_phase,
            package=job.wp,
            round=job.round,
            agent=job.agent,
            job=job.id,
            started=job.started,
            ended=job.ended,
            outcome=job.outcome,
        )


def _collect_bars(
    reader: StoreReader, slug: str, events: Iterable[StreamEvent], gates: Iterable[GateRow]
) -> Iterator[TimelineBar]:
    """Yield the bars of a feature's timeline: agents, gates, steps."""
    yield from agent_bars(reader, slug)
    for gate in gates:
        yield TimelineBar(
            kind="gate",
            name=gate.phase,
            phase=gate.phase,
            package="",
            round=gate.round,
            agent="",
            job="",
            started=gate.at,
            ended=gate.at,
            outcome=gate.outcome,
        )

    for step in (event.event for event in events):
        if isinstance(step, StepTimed):
            yield TimelineBar(
                kind="step",
                name=step.step,
                phase=step.phase,
                package=step.work,
                round=step.round,
                agent="",
                job="",
                started=step.started,
                ended=_add_seconds(step.started, step.duration_s),
                outcome="",
                parts_s=dict(step.parts),
            )


def _add_seconds(moment: str, seconds: float) -> str:
    later = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    return later.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_block_of_feature(
    folder: str, slug: str, event: str | None, phase: str | None
) -> str | None:
    """Return the next-steps block of a feature by name, whichever is the active one."""
    with require_reader(folder) as reader:
        feature = read_feature(reader, slug)
        if feature is None:
            raise unknown_feature_error(slug, reader.features())

    workflow = feature.workflow
    state = build_state_view(workflow)
    return next_steps(state, event, phase, own_state=build_own_state(workflow))
