"""`kill -9` of a run at every recorded step (F01, F03, W5): the next comes to the same end, nothing is done twice."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.caged import eventually, processes_with
from support.feature_run import FeatureRun, is_meant, make_feature_run

UNTIL = Path(__file__).with_name("feature_until.py")
STEPS = 70  # of an undisturbed run; a test sees to it that none is left out
PARTS = 2
Effects = dict[str, Any]


def lives(run: FeatureRun, when: str, which: str) -> dict[str, Any]:
    """The run, killed and gone on with; the names of all steps that were taken, and of those at which it died."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, str(UNTIL), str(run.root), when, which]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def nothing_is_left(run: FeatureRun) -> bool:
    return eventually(lambda: processes_with(str(run.folder)) == [])


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Effects:
    """What a run brings about that nobody disturbs; made once for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with (shared / "undisturbed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = shared / "undisturbed.json"
        if not kept.exists():
            kept.write_text(json.dumps(_undisturbed(shared / "undisturbed")))
    effects: Effects = json.loads(kept.read_text())
    return effects


def _undisturbed(folder: Path) -> Effects:
    with pytest.MonkeyPatch.context() as patch:
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "Test")
            patch.setenv(f"GIT_{who}_EMAIL", "test@example.invalid")
        patch.setenv("HOME", str(folder / "home"))
        run = make_feature_run(folder)
        told = lives(run, "never", "-")
        effects = run.effects()
    assert len(told["took"]) == len(set(told["took"])) == STEPS, "each step has a name of its own"
    assert effects["stages"] == ["completed"]
    assert (effects["audit"], effects["git locks"], effects["checkouts"], effects["rooms"]) == ([], [], [], [])
    assert effects["main"] == ["001-say-bye: Say bye", "Begin"]
    assert effects["tree"]["hi.py"].endswith("# mended")
    effects["steps"] = sorted(told["took"])
    return effects


def check_same_end(run: FeatureRun, undisturbed: Effects) -> None:
    assert nothing_is_left(run), "a process is left"
    effects = run.effects()
    assert {name: effects[name] for name in effects if effects[name] != undisturbed[name]} == {}


@pytest.mark.demand("W5.a", "W5.b", "W5.c", "W2.c", "D4.c")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_killed_at_every_recorded_step_comes_to_the_same_end(
    tmp_path: Path, undisturbed: Effects, when: str, part: int
) -> None:
    """Killed at each step of a half of them, at those of the resumed run too; each life goes on at once."""
    run = make_feature_run(tmp_path)
    told = lives(run, when, f"{part}/{PARTS}")
    taken = {step for step in told["took"] if is_meant(step, f"{part}/{PARTS}")}
    assert taken == set(told["died"])
    assert taken >= {step for step in undisturbed["steps"] if is_meant(step, f"{part}/{PARTS}")}
    assert any("lost" in step for step in told["died"]), "control: it died in the middle of resuming, too"
    check_same_end(run, undisturbed)


@pytest.mark.demand("W5.a", "W5.b", "W5.c", "W2.c", "W8.g")
def test_a_run_killed_around_its_merge_merges_once(tmp_path: Path, undisturbed: Effects) -> None:
    """In the middle of it, after it and before its record, and after the last record of all (F03, F04, H01)."""
    run = make_feature_run(tmp_path)
    begun = run.git("rev-parse", "main")
    lives(run, "moving", "main")
    assert run.git("rev-parse", "main") == begun
    assert (run.root / "CHANGELOG.md").exists(), "control: the person's files were being moved"
    assert (run.root / ".git/index.lock").exists(), "control: a lock file is left behind"
    run.state_file.write_bytes(b"\0" * 100)
    lives(run, "before", "workflow.happened merged")
    assert run.git("log", "--first-parent", "--format=%s", "main").splitlines() == undisturbed["main"]
    assert json.loads(run.state_file.read_text())["active_workflow"] is not None
    lives(run, "after", "workflow.happened completed")
    assert json.loads(run.state_file.read_text())["active_workflow"] is not None, "control: the view is behind"
    again = run.run("run", "--merge")
    assert (again.returncode, "no workflow is active" in again.stderr) == (4, True), again
    check_same_end(run, undisturbed)
