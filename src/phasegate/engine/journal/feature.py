"""A feature's events and where they lead: every step is one durable record, and state.json is its view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from phasegate.core.machine.feature_events import GateChecked, Happened
from phasegate.core.machine.feature_machine import apply, decide, fold
from phasegate.core.machine.feature_outcomes import judged
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.core.workflow.lifecycle import Stage, Workflow, state_view
from phasegate.engine.journal.entries import FEATURE_STEP, feature_step, read_feature_step
from phasegate.engine.journal.unit_journal import Due, Transition, WorkJournal
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.storage.row_events import gate_judged, workflow_changed
from phasegate.storage.rows import Event, Gate, Recorded, WorkflowRow
from phasegate.storage.state_view import write_view

_WAITS = (Step.STOP, Step.COMPLETE)  # for a person


def read_feature(reader: RecordReader, slug: str) -> Feature | None:
    """Where a feature stands; None if it never was started."""
    return fold(read_feature_step(one.payload) for one in reader.events(slug) if one.kind == FEATURE_STEP)


def recorded_workflows(reader: RecordReader) -> list[Workflow]:
    """Every feature's workflow, the one started, moved or chosen last first."""
    return [
        Workflow(row.feature, row.type, tuple(row.phases.split()), row.position, Stage(row.stage), row.round, row.noun)
        for row in reader.workflows()
    ]


def naming(reader: RecordReader, slug: str) -> str:
    """What a hint must carry so that it can be typed as it stands: ` --feature SLUG` beside another feature in work."""
    others = any(one.active and one.feature != slug for one in recorded_workflows(reader))
    return f" --feature {slug}" if others else ""


def state_of(reader: RecordReader, slug: str) -> dict[str, object]:
    """What state.json would hold if this were the only feature."""
    return state_view(next((one for one in recorded_workflows(reader) if one.feature == slug), None))


class FeatureUnit:
    """A feature, for its journal."""

    work = ""

    def __init__(self, slug: str) -> None:
        self.slug = slug
        self._gates = 0

    def read(self, recorded: Recorded) -> Happened | None:
        return read_feature_step(recorded.payload) if recorded.kind == FEATURE_STEP else None

    def write(self, event: Happened) -> Event:
        return feature_step(event)

    def fold(self, events: Iterable[Happened]) -> Feature | None:
        every = list(events)
        self._gates = sum(isinstance(event, GateChecked) for event in every)
        return fold(every)

    def apply(self, state: Feature | None, event: Happened) -> Feature:
        after = apply(state, event)
        assert after is not None, "a feature begins with its start"
        return after

    def rows(self, taken: Sequence[Transition[Feature, Happened]], ts: str) -> Iterator[Event]:
        for before, event, _ in taken:
            if isinstance(event, GateChecked) and before is not None:
                self._gates += 1
                yield gate_judged(_gate(before, event, self._gates, ts))
        if taken and (taken[0].before is None or _shown(taken[0].before) != _shown(taken[-1].after)):
            yield workflow_row(taken[-1].after, ts)

    def due(self, state: Feature) -> Due | None:
        step = decide(state)[0].step
        return None if step in _WAITS else Due("archive" if state.closing else state.workflow.phase, step, state.round)


def open_feature_journal(project: Project, record: RunRecord, slug: str) -> WorkJournal[Feature, Happened]:
    """The journal of a feature; state.json follows it."""

    def heard(taken: Sequence[Transition[Feature, Happened]]) -> None:
        if taken and (taken[0].before is None or _shown(taken[0].before) != _shown(taken[-1].after)):
            show(project, record, taken[-1].after)

    return WorkJournal(record, project.clock, FeatureUnit(slug), heard)


def choose(project: Project, record: RunRecord, journal: WorkJournal[Feature, Happened]) -> None:
    """Make a feature the default of later commands, and the one that state.json shows."""
    feature = journal.state
    first = next(iter(record.workflows()), None)
    if first is not None and first.feature != feature.workflow.feature:
        journal.record(rows=[workflow_row(feature, project.now())])
    show(project, record, feature)


def show(project: Project, reader: RecordReader, feature: Feature) -> None:
    """Write state.json anew: this feature, or when it has ended the one that is the default then."""
    own = feature.workflow
    others = (one for one in recorded_workflows(reader) if one.active and one.feature != own.feature)
    write_view(project.root, own if own.active else next(others, None))


def _gate(feature: Feature, event: GateChecked, number: int, ts: str) -> Gate:
    result, workflow = judged(feature, event), feature.workflow
    reasons = "\n".join(result.reasons)
    return Gate(workflow.feature, number, workflow.phase, workflow.round, str(result.outcome), reasons, ts)


def _shown(feature: Feature) -> tuple[object, ...]:
    workflow = feature.workflow
    return workflow.index, workflow.stage, workflow.round, workflow.reason, feature.remediation, feature.merged


def workflow_row(feature: Feature, ts: str) -> Event:
    """Where a feature's workflow stands, as the journal knows it."""
    workflow = feature.workflow
    return workflow_changed(
        WorkflowRow(
            workflow.feature,
            workflow.type,
            feature.description,
            feature.base,
            " ".join(workflow.phases),
            workflow.index,
            str(workflow.stage),
            workflow.round,
            workflow.reason,
            feature.remediation,
            workflow.noun,
            ts,
            feature.merged,
        )
    )
