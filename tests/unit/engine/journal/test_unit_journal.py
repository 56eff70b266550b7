"""The journal of a unit of work: what others write beside it, the time of its steps, and notices."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    CheckoutsRemoved,
    PackageLimits,
    PackagePrepared,
)
from phasegate.core.machine.package_state import PackageRun
from phasegate.core.plan.work_package import PackageState, WorkPackage
from phasegate.engine.journal.entries import read_notice, read_step_timed
from phasegate.engine.journal.package import PackageUnit
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.errors import Interrupted, MovedOn
from phasegate.storage.rows import NewEvent
from support.memory_ports import CountingClock, MemoryRecord

SLUG, TS = "001-a", "2026-01-01T00:00:00.000Z"


def journal_of(
    record: MemoryRecord, package: str = "WP01"
) -> UnitJournal[PackageRun, AnyPackageEvent]:
    work = WorkPackage(work_package_id=package, title="A", feature_slug=SLUG, file_scope=("a.py",))
    return UnitJournal(
        record, CountingClock(), PackageUnit(work, PackageLimits(), "06-implementation")
    )


@pytest.mark.demand("W5.a")
def test_what_others_record_of_the_same_feature_is_no_hindrance() -> None:
    record = MemoryRecord()
    first, second = journal_of(record, "WP01"), journal_of(record, "WP02")
    first.record(PackagePrepared("b"))
    record.append_unconditionally(SLUG, TS, [NewEvent("noted", b"{}")])
    assert second.record(PackagePrepared("b")).state is PackageState.DOING
    assert [(row.id, row.state) for row in record.packages(SLUG)] == [
        ("WP01", "DOING"),
        ("WP02", "DOING"),
    ]


@pytest.mark.demand("W5.a")
def test_two_that_carry_on_one_package_cannot_both_take_a_step() -> None:
    record = MemoryRecord()
    first, second = journal_of(record), journal_of(record)
    first.record(PackagePrepared("b"))
    before = record.last_seq(SLUG)
    with pytest.raises(MovedOn):
        second.record(PackagePrepared("b"))
    assert record.last_seq(SLUG) == before
    second.reload()
    assert second.state == first.state


def test_every_moment_of_a_run_belongs_to_a_step_also_of_one_that_is_stopped() -> None:
    record = MemoryRecord()
    journal = journal_of(record)
    journal.start_timing()
    with suppress(Interrupted), journal.finish_on_exit():
        journal.queue_notices("worktree ready")
        journal.record(PackagePrepared("b"))
        raise Interrupted
    steps = [step for one in record.events(SLUG) if (step := read_step_timed(one)) is not None]
    assert [(step.work, step.step, step.round) for step in steps] == [
        ("WP01", "prepare", 1),
        ("WP01", "implement", 1),
    ]
    assert all(step.duration_s > 0 for step in steps)
    assert [told.text for one in record.events(SLUG) if (told := read_notice(one))] == [
        "worktree ready"
    ]
    first = next(json.loads(one.payload) for one in record.events(SLUG))
    assert first["package"] == "WP01", "the event itself comes first"


def test_an_order_by_hand_takes_no_time() -> None:
    record = MemoryRecord()
    journal_of(record).record(PackagePrepared("b"), CheckoutsRemoved())
    assert not [one for one in record.events(SLUG) if read_step_timed(one)]
