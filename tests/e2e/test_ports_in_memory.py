"""The same feature, driven with the store and without one, gives the same events and the same tree."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.drive import orders
from phasegate.engine.drive.run_feature import RunOptions, drive_feature, drive_feature_with
from phasegate.engine.journal.entries import read_step_timed
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.storage.location import prepare_data_folder
from phasegate.storage.rows import RecordedEvent
from support.alike_runs import alike, one_at_a_time, tree_of
from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.memory_ports import (
    CountingClock,
    MemoryPapers,
    MemoryRecord,
    MemoryTrails,
    memory_desk,
)


def named_share(events: Sequence[RecordedEvent]) -> float:
    """The part of a run's time that its steps account for."""
    steps = [step for one in events if (step := read_step_timed(one)) is not None and not step.work]
    whole = datetime.fromisoformat(events[-1].ts) - datetime.fromisoformat(steps[0].started)
    return sum(step.duration_s for step in steps) / whole.total_seconds()


@pytest.mark.demand("W5.a", "W6.c")
def test_a_feature_driven_without_a_store_gives_the_same_events_and_the_same_tree(
    tmp_path: Path,
) -> None:
    stored, kept = one_at_a_time(tmp_path / "stored"), one_at_a_time(tmp_path / "kept")
    project = stored.project
    with open_project_store(project) as store:
        orders.start_workflow(project, store, TYPE, DESCRIPTION)
        by_store = drive_feature(project, store, SLUG, RunOptions(merge=True))
        first = list(store.events(SLUG))
    record, trails = MemoryRecord(), MemoryTrails()
    elsewhere = open_project(kept.root)._replace(
        document_store=MemoryPapers(), clock=CountingClock()
    )
    prepare_data_folder(elsewhere.location)  # the locks of this machine hold for every driver here
    orders.start_workflow(elsewhere, record, TYPE, DESCRIPTION)
    by_memory = drive_feature_with(
        memory_desk(elsewhere, record, trails), SLUG, RunOptions(merge=True)
    )
    second = list(record.events(SLUG))
    assert isinstance(by_store, Feature)
    assert isinstance(by_memory, Feature)
    assert by_store.workflow.stage is by_memory.workflow.stage is Stage.COMPLETED
    events, others = list(alike(first, stored.root)), list(alike(second, kept.root))
    assert others == events
    assert {kind for kind, _ in events} >= {
        "workflow.happened",
        "package.happened",
        "job.ended",
        "step.timed",
    }
    assert tree_of(kept, second[0].ts) == tree_of(stored, first[0].ts) != {}
    assert named_share(first) > 0.95, "the record says where the time of a run went"
    assert not (elsewhere.location.store_path).exists(), "control: the second had no store"
    assert len(trails.lines) == len(record.jobs(SLUG)) > 5
