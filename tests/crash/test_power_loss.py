"""Power failures (O01): on a disk that keeps only what was synced, nothing that was acknowledged is lost.

A run is traced once, and cut off behind its n-th change of a file: some of them here, all of them in the long tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.storage.journal_store import open_store
from phasegate.storage.location import Location
from phasegate.storage.trail_recovery import recover_trails
from phasegate.storage.verify_audit import verify_audit
from support.power_loss import Disk, calls_of, can_trace, trace
from support.record import make_repository
from support.recovered_record import TS, location_in, recovered, what_is_missing

HERE = Path(__file__).parent
SCENARIO = "import sys; from pathlib import Path; from record_scenario import scenario; scenario(Path(sys.argv[1]), 'a')"
EVERY = 12
pytestmark = pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")


class Traced:
    """A run of the record's scenario, as it was before and what it did."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "disk"
        self.location: Location = make_repository(self.top)
        self._before = folder / "before"
        shutil.copytree(self.top, self._before, symlinks=True)
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        argv = [sys.executable, "-c", SCENARIO, str(self.top)]
        assert trace(argv, folder / "log", env=environment, cwd="/") == 0, (
            folder / "said"
        ).read_text()
        self.calls = calls_of(folder / "log")

    def from_the_start(self) -> Disk:
        shutil.rmtree(self.top)
        shutil.copytree(self._before, self.top, symlinks=True)
        return Disk(self.top)

    def cut(self, disk: Disk) -> None:
        """Have the power fail now. What was acknowledged was read by somebody: it stays."""
        shutil.rmtree(self.top)
        disk.leave(self.top)
        (self.top / "acknowledged").write_bytes(disk.content(self.top / "acknowledged"))


@pytest.fixture
def traced(tmp_path: Path) -> Traced:
    return Traced(tmp_path)


def test_the_model_has_the_files_that_the_run_has_left(tmp_path: Path) -> None:
    """The control of the tool: played to its end, the trace makes every file as it is."""
    run = Traced(tmp_path)
    disk = Disk(tmp_path / "before")
    disk.top = str(run.top)
    for call in run.calls:
        disk.play(call)
    assert list(disk.differences()) == []
    assert disk.strays == []


def check_after_cuts(run: Traced, every: int) -> int:
    disk, changes = run.from_the_start(), 0
    for call in run.calls:
        if not disk.play(call):
            continue
        changes += 1
        if changes % every:
            continue
        run.cut(disk)
        where = f"change {changes}: {call.name} {call.arguments[0][:200]!r}"
        assert recovered(run.top).problems == (), where
        assert what_is_missing(run.top) == set(), where
        subprocess.run(
            ["git", "-C", run.location.root, "fsck", "--strict"], check=True, capture_output=True
        )
    return changes


@pytest.mark.demand("W5.a", "W5.c", "D13.i")
def test_after_a_power_failure_the_record_verifies_and_has_all_that_was_acknowledged(
    traced: Traced,
) -> None:
    assert check_after_cuts(traced, EVERY) > 200


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.c", "D13.i")
def test_after_a_power_failure_at_any_change_the_record_has_all_that_was_acknowledged(
    traced: Traced,
) -> None:
    assert check_after_cuts(traced, 1) > 200


@pytest.mark.demand("W5.c")
def test_without_the_syncs_the_same_run_would_lose_what_was_acknowledged(traced: Traced) -> None:
    """The control: it is the syncs that save it, and the model knows the difference."""
    disk = traced.from_the_start()
    for call in traced.calls:
        if call.name not in ("fsync", "fdatasync"):
            disk.play(call)
    traced.cut(disk)
    with open_store(location_in(traced.top), "store-id", TS) as store:
        recover_trails(store, location_in(traced.top), "recovery", TS)
    assert what_is_missing(traced.top) != set()
    assert verify_audit(location_in(traced.top)).entries < 8
