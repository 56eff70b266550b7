"""A feature's events and where they lead: every step is one durable record, and state.json is its view (W2, W5)."""

from __future__ import annotations

import msgspec

from phasegate.engine.project import Project
from phasegate.record.reader import Reader
from phasegate.record.row_events import gate_judged, workflow_changed
from phasegate.record.rows import Event, Gate
from phasegate.record.rows import Workflow as WorkflowRow
from phasegate.record.store import Store
from phasegate.record.view import write_view
from phasegate.rules.decide import apply, fold
from phasegate.rules.feature_events import GateChecked, Happened
from phasegate.rules.feature_state import Feature
from phasegate.rules.lifecycle import Stage, Workflow
from phasegate.rules.step_outcomes import judged

HAPPENED = "workflow.happened"


class _Step(msgspec.Struct, frozen=True):
    event: Happened


def happened(event: Happened) -> Event:
    """An event as the journal holds it."""
    return Event(HAPPENED, msgspec.json.encode(_Step(event)))


def read_happened(payload: bytes) -> Happened:
    """What a record of the journal says."""
    return msgspec.json.decode(payload, type=_Step).event


def read_feature(reader: Reader, slug: str) -> Feature | None:
    """Where a feature stands; None if it never was started."""
    return fold(read_happened(one.payload) for one in reader.events(slug) if one.kind == HAPPENED)


def recorded_workflows(reader: Reader) -> list[Workflow]:
    """Every feature's workflow, the one started, moved or chosen last first."""
    return [
        Workflow(row.feature, row.type, tuple(row.phases.split()), row.position, Stage(row.stage), row.round, row.noun)
        for row in reader.workflows()
    ]


class FeatureJournal:
    """One feature's events and what they make. Only the holder of the feature's lock writes."""

    def __init__(self, project: Project, store: Store, slug: str) -> None:
        self._project, self._store, self._slug = project, store, slug
        self._feature = read_feature(store, slug)

    @property
    def feature(self) -> Feature:
        assert self._feature is not None, "a journal is opened for a feature that was started"
        return self._feature

    @property
    def is_begun(self) -> bool:
        return self._feature is not None

    def read_again(self) -> None:
        """Take in what is on record: an interrupted step may be, or may not."""
        self._feature = read_feature(self._store, self._slug)

    def record(self, *events: Happened, rows: tuple[Event, ...] = ()) -> Feature:
        """Append what happened as one durable step, and take it in."""
        feature = self._feature
        gates: list[Event] = []
        for event in events:
            if isinstance(event, GateChecked) and feature is not None:
                gates.append(self._gate(feature, event, len(gates)))
            feature = apply(feature, event)
        assert feature is not None
        moved = (
            [] if self._feature and _shown(feature) == _shown(self._feature) else [_row(feature, self._project.now())]
        )
        self._store.append_now(self._slug, self._project.now(), [*map(happened, events), *rows, *gates, *moved])
        self._feature = feature
        if moved:
            self.show()
        return feature

    def choose(self) -> None:
        """Make the feature the default of later commands, and the one that state.json shows (W4)."""
        first = next(iter(self._store.workflows()), None)
        if first is not None and first.feature != self._slug:
            self._store.append_now(self._slug, self._project.now(), [_row(self.feature, self._project.now())])
        self.show()

    def show(self) -> None:
        """Write state.json anew: this feature, or when it has ended the one that is the default then."""
        own = self.feature.workflow
        others = (one for one in recorded_workflows(self._store) if one.active and one.feature != self._slug)
        write_view(self._project.root, own if own.active else next(others, None))

    def _gate(self, feature: Feature, event: GateChecked, offset: int) -> Event:
        result, workflow = judged(feature, event), feature.workflow
        number = len(self._store.gates(self._slug)) + offset + 1
        reasons = "\n".join(result.reasons)
        at = self._project.now()
        return gate_judged(Gate(self._slug, number, workflow.phase, workflow.round, str(result.outcome), reasons, at))


def _shown(feature: Feature) -> tuple[object, ...]:
    workflow = feature.workflow
    return workflow.index, workflow.stage, workflow.round, workflow.reason, feature.remediation, feature.merged


def _row(feature: Feature, ts: str) -> Event:
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
