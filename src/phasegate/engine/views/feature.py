"""Everything about one feature, folded from its journal.

Gates, packages, bars of time, what may be ordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from phasegate.core.display.event_lines import list_allowed_orders, select_open_findings
from phasegate.core.display.status import FeatureCard, PhaseCard, derive_standing
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.spending import Spending
from phasegate.engine.journal.entries import StepTimed
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.engine.views.overview import PackageCard, feature_card, package_cards
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import GateRow


class FeatureStatusView(NamedTuple):
    """Where a feature stands, what a person has to decide on, and what they may order."""

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
    # The state of each
    packages: dict[str, str]
    # The commands that are allowed now
    orders: tuple[str, ...]
    # The phases that `back` can go to
    earlier: tuple[str, ...]
    # Its address
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
    """Something that took time, for a time axis; a gate's check takes none.

    `ended` is empty while it lasts.
    """

    # Agent, gate, step
    kind: str
    # The agent's role, the gate, or the step
    name: str
    phase: str
    package: str
    round: int
    agent: str
    job: str
    started: str
    ended: str
    outcome: str
    # Of a step: how long each command took
    parts_s: dict[str, float] | None = None


class EventLine(NamedTuple):
    """What people were told of an event."""

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
    # By their start
    bars: tuple[TimelineBar, ...]
    now: FeatureStatusView
    spent: Spending
    # Of its last event
    seq: int
    # What people were told, oldest first
    lines: tuple[EventLine, ...] | None = None


def feature_status_view(feature: Feature, *, is_held: bool = False) -> FeatureStatusView:
    """Where a feature stands when a run or an order ends."""
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
    """Everything about one feature, with `told` also what people were told.

    None if it has no workflow.
    """
    row = next((row for row in reader.workflows() if row.feature == slug), None)
    if row is None:
        return None

    # Who works on it before what happened: one that has ended has recorded all
    card = feature_card(reader, row)
    follower = JournalFollower(reader, slug, after=0)
    events = [*follower.read_events()]
    gates = reader.gates(slug)
    if follower.feature is None:
        return None

    return FeatureView(
        card=card,
        phases=tuple(_phase_view(phase, gates) for phase in card.phases),
        packages=package_cards(reader, slug),
        bars=tuple(sorted(_collect_bars(reader, slug, events, gates), key=lambda bar: bar.started)),
        now=feature_status_view(follower.feature, is_held=card.worker is not None),
        spent=reader.total_spent(slug),
        seq=events[-1].seq,
        lines=tuple(
            EventLine(position=e.position, ts=e.ts, phase=e.phase, package=e.package, line=e.line)
            for e in events
            if e.line
        )
        if with_lines
        else None,
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
    """The runs of agents on a time axis."""
    for job in reader.jobs(slug):
        who = (job.round, job.agent, job.id)
        yield TimelineBar(
            "agent",
            job.phase,
            job.workflow_phase,
            job.wp,
            *who,
            job.started,
            job.ended,
            job.outcome,
        )


def _collect_bars(
    reader: StoreReader, slug: str, events: Iterable[StreamEvent], gates: Iterable[GateRow]
) -> Iterator[TimelineBar]:
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
            times = (step.started, _add_seconds(step.started, step.duration_s))
            yield TimelineBar(
                "step",
                step.step,
                step.phase,
                step.work,
                step.round,
                "",
                "",
                *times,
                "",
                dict(step.parts),
            )


def _add_seconds(moment: str, seconds: float) -> str:
    later = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    return later.isoformat(timespec="milliseconds").replace("+00:00", "Z")
