"""Polls of a forge: how long until the next one."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from phasegate.config.settings import Config, ForgeSettings
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    PackageLimits,
    PackagePrepared,
)
from phasegate.core.machine.package_state import PackageRun
from phasegate.engine.drive.forge_poller import ForgePoller
from phasegate.engine.drive.step_runner import StepRunner
from phasegate.engine.jobs.step import StepContext, StepResult, UnitSteps
from phasegate.engine.journal.entries import read_notice
from phasegate.engine.journal.package import PackageUnit
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.errors import TemporarilyUnavailable
from phasegate.sandbox.job import StopEvent
from support.memory_ports import MemoryRecord, MemoryTrails, memory_desk
from support.packages import LOGIN_FORM
from support.plain_project import make_plain_project


class Waits(StopEvent):
    """Keeps how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_s.append(timeout or 0.0)
        return False


class PreparedSteps:
    """Fulfils `UnitSteps`: progress, none, or a forge that is unavailable."""

    def __init__(self, *results: bool | TemporarilyUnavailable) -> None:
        self._results = iter(results)

    def run(self, _state: PackageRun, _context: StepContext) -> StepResult[AnyPackageEvent]:
        result = next(self._results)
        if isinstance(result, TemporarilyUnavailable):
            raise result
        return StepResult((PackagePrepared("b"),) if result else ())


def run(
    folder: Path, *results: bool | TemporarilyUnavailable, once: bool = False
) -> tuple[list[float], list[str], list[bool]]:
    """The waits, the notices, and whether each poll made progress."""
    stop, record = Waits(), MemoryRecord()
    config = Config(forge=ForgeSettings(poll_interval_s=10))
    project = make_plain_project(folder, config)._replace(stop=stop)
    unit = PackageUnit(LOGIN_FORM, PackageLimits(), "06-implementation")
    journal = UnitJournal(record, project.clock, unit)
    steps = cast("UnitSteps[PackageRun, AnyPackageEvent]", PreparedSteps(*results))
    loop = StepRunner(memory_desk(project, record, MemoryTrails()), journal, steps)
    poller = ForgePoller(project, journal, loop, once)
    progress = []
    for _ in results:
        progress.append(poller.poll())
        poller.wait_for_next_poll()
    notices = [told.text for one in record.events(unit.slug) if (told := read_notice(one))]
    return stop.waited_s, notices, progress


def test_each_idle_poll_waits_longer_up_to_ten_times_and_progress_starts_again(
    tmp_path: Path,
) -> None:
    waited_s, _, _ = run(tmp_path, *[False] * 12)
    assert waited_s[:3] == [10.0, 15.0, 22.5]
    assert waited_s == sorted(waited_s)
    assert waited_s[-1] == 100.0
    again_s, _, progress = run(tmp_path, False, False, True)
    assert (again_s[-1], progress) == (10.0, [False, False, True])


def test_a_wait_that_the_forge_asks_for_is_kept_once(tmp_path: Path) -> None:
    busy = TemporarilyUnavailable("slow down", retry_after_s=600)
    waited_s, notices, _ = run(tmp_path, busy, False)
    assert waited_s == [600, 15.0]
    assert notices == ["slow down; retrying"]
    short = TemporarilyUnavailable("slow down", retry_after_s=1)
    assert run(tmp_path, short)[0] == [10.0]


def test_a_single_poll_does_not_wait_and_reports_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, False, once=True)[0] == []
    with pytest.raises(TemporarilyUnavailable):
        run(tmp_path, TemporarilyUnavailable("slow down"), once=True)
