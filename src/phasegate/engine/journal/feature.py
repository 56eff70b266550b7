"""The journal of a feature. Every append is one durable step; state.json is a view of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from phasegate.core.machine.feature_events import AnyFeatureEvent, GateChecked
from phasegate.core.machine.feature_machine import (
    apply_feature_event,
    decide_feature_actions,
    fold_feature_events,
)
from phasegate.core.machine.feature_outcomes import evaluate_phase_gate, find_gate_finding
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.core.workflow.gate import GateOutcome
from phasegate.core.workflow.phase_transitions import Stage, Workflow, build_state_view
from phasegate.engine.journal.entries import FEATURE_STEP, encode_feature_step, read_feature_step
from phasegate.engine.journal.unit_journal import DueStep, Transition, UnitJournal
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.storage.row_events import gate_judged_event, workflow_changed_event
from phasegate.storage.rows import GateRow, NewEvent, RecordedEvent, WorkflowRow
from phasegate.storage.state_view import write_state_view

FeatureJournal = UnitJournal[Feature, AnyFeatureEvent]
# Steps that wait for the user
_USER_STEPS = (Step.STOP, Step.COMPLETE)


def read_feature(reader: RecordReader, slug: str) -> Feature | None:
    """Return the state of a feature, or None if it was never started."""
    return fold_feature_events(
        read_feature_step(one.payload) for one in reader.events(slug) if one.kind == FEATURE_STEP
    )


def read_workflows(reader: RecordReader) -> list[Workflow]:
    """Return all workflows, the most recently started, advanced or selected first."""
    return [make_workflow(row) for row in reader.workflows()]


def make_workflow(row: WorkflowRow) -> Workflow:
    """Convert the stored row of a workflow."""
    return Workflow(
        feature=row.feature,
        type=row.type,
        phases=tuple(row.phases.split()),
        index=row.position,
        stage=Stage(row.stage),
        round=row.round,
        noun=row.noun,
    )


def make_feature_option(reader: RecordReader, slug: str) -> str:
    """Return ` --feature SLUG` for the commands in hints; empty if no other feature is active."""
    for workflow in read_workflows(reader):
        if workflow.is_active and workflow.feature != slug:
            return f" --feature {slug}"
    return ""


def read_state_view(reader: RecordReader, slug: str) -> dict[str, object]:
    """Return the content of state.json as if this were the only feature."""
    return build_state_view(
        next((one for one in read_workflows(reader) if one.feature == slug), None)
    )


class FeatureUnit:
    """A feature as a unit of work."""

    work = ""

    def __init__(self, slug: str) -> None:
        self.slug = slug
        self._gates = 0

    def read_event(self, recorded: RecordedEvent) -> AnyFeatureEvent | None:
        if recorded.kind == FEATURE_STEP:
            return read_feature_step(recorded.payload)
        return None

    def encode_event(self, event: AnyFeatureEvent) -> NewEvent:
        return encode_feature_step(event)

    def fold(self, events: Iterable[AnyFeatureEvent]) -> Feature | None:
        all_events = list(events)
        self._gates = sum(isinstance(event, GateChecked) for event in all_events)
        return fold_feature_events(all_events)

    def apply(self, state: Feature | None, event: AnyFeatureEvent) -> Feature:
        after = apply_feature_event(state, event)
        assert after is not None, "the first event of a feature is its start"
        return after

    def make_rows(
        self, transitions: Sequence[Transition[Feature, AnyFeatureEvent]], ts: str
    ) -> Iterator[NewEvent]:
        for before, event, _ in transitions:
            if isinstance(event, GateChecked) and before is not None:
                self._gates += 1
                yield gate_judged_event(_make_gate_row(before, event, self._gates, ts))

        if _changes_view(transitions):
            yield make_workflow_row(transitions[-1].after, ts)

    def find_due_step(self, state: Feature) -> DueStep | None:
        step = decide_feature_actions(state)[0].step
        if step in _USER_STEPS:
            return None
        return DueStep("archive" if state.closing else state.workflow.phase, step, state.round)


def open_feature_journal(project: Project, record: RunRecord, slug: str) -> FeatureJournal:
    """Open the journal of a feature; its appends update state.json."""

    def update_view(transitions: Sequence[Transition[Feature, AnyFeatureEvent]]) -> None:
        if _changes_view(transitions):
            write_feature_view(project, record, transitions[-1].after)

    return UnitJournal(record, project.clock, FeatureUnit(slug), update_view)


def make_default_feature(project: Project, record: RunRecord, journal: FeatureJournal) -> None:
    """Make a feature the default of later commands and the content of state.json."""
    feature = journal.state
    first = next(iter(record.workflows()), None)
    if first is not None and first.feature != feature.workflow.feature:
        journal.record(rows=[make_workflow_row(feature, project.now())])
    write_feature_view(project, record, feature)


def write_feature_view(project: Project, reader: RecordReader, feature: Feature) -> None:
    """Write state.json for a feature; if it has ended, for the next active feature."""
    shown: Workflow | None = feature.workflow
    if not feature.workflow.is_active:
        shown = next(
            (
                workflow
                for workflow in read_workflows(reader)
                if workflow.is_active and workflow.feature != feature.workflow.feature
            ),
            None,
        )

    write_state_view(project.root, shown)


def _make_gate_row(feature: Feature, event: GateChecked, number: int, ts: str) -> GateRow:
    """Create the row of a gate check from its event."""
    result = evaluate_phase_gate(feature, event)
    workflow = feature.workflow
    reasons = result.reasons
    if result.outcome is not GateOutcome.PASSED:
        reasons = (*reasons, find_gate_finding(feature, event))
    return GateRow(
        feature=workflow.feature,
        number=number,
        phase=workflow.phase,
        round=workflow.round,
        outcome=str(result.outcome),
        reasons="\n".join(filter(None, reasons)),
        at=ts,
    )


def _changes_view(transitions: Sequence[Transition[Feature, AnyFeatureEvent]]) -> bool:
    if not transitions:
        return False

    before = transitions[0].before
    return before is None or _view_fields(before) != _view_fields(transitions[-1].after)


def _view_fields(feature: Feature) -> tuple[object, ...]:
    workflow = feature.workflow
    return (
        workflow.index,
        workflow.stage,
        workflow.round,
        workflow.reason,
        feature.remediation,
        feature.merged,
    )


def make_workflow_row(feature: Feature, ts: str) -> NewEvent:
    """Make the row event of a feature's workflow."""
    workflow = feature.workflow
    return workflow_changed_event(
        WorkflowRow(
            feature=workflow.feature,
            type=workflow.type,
            description=feature.description,
            base=feature.base,
            phases=" ".join(workflow.phases),
            position=workflow.index,
            stage=str(workflow.stage),
            round=workflow.round,
            reason=workflow.reason,
            remediation=feature.remediation,
            noun=workflow.noun,
            since=ts,
            merged=feature.merged,
        )
    )
