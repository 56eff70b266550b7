"""`kill -9` of a run at every recorded step (F01, F03, W5): the next comes to the same end, nothing is done twice."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phasegate.engine.project.check_record import CHECKS_RECORDED
from support.feature_run import (
    DESCRIPTION,
    TYPE,
    FeatureRun,
    is_meant,
    make_feature_run,
    recorded_in,
)
from support.sandboxed import eventually, processes_with

UNTIL = Path(__file__).with_name("feature_until.py")
MOMENTS = 70  # about as many as an undisturbed run takes steps
SEED = 20260301
PARTS = 2
SMALL_PARTS = 36
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
            kept.write_text(json.dumps(_undisturbed(tmp_path_factory.mktemp("undisturbed"))))
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
        effects, recorded = run.effects(), run.recorded()
    assert len(told["took"]) == len(set(told["took"])) > 60, "each step has a name of its own"
    assert effects["stages"] == ["completed"]
    assert (effects["audit"], effects["git locks"], effects["checkouts"], effects["rooms"]) == (
        [],
        [],
        [],
        [],
    )
    assert effects["main"] == ["Say bye", "Begin"]
    assert effects["receipts"] == [[True, True, ["test"], True]]
    assert effects["tree"]["hi.py"].endswith("# mended")
    effects["events"] = recorded
    effects["steps"] = sorted(told["took"])
    return effects


def check_same_end(run: FeatureRun, undisturbed: Effects, *, decided: bool = False) -> None:
    """The end is that of the undisturbed run; a decision of the user is in the merged document."""
    assert nothing_is_left(run), "a process is left"
    effects = run.effects()
    expected = dict(undisturbed)
    if decided:
        for one in (effects, expected):
            one["tree"] = {
                path: text for path, text in one["tree"].items() if not path.endswith("/spec.md")
            }
    assert {name: effects[name] for name in effects if effects[name] != expected[name]} == {}


@pytest.mark.demand("W5.a", "W5.b", "W5.c", "W2.c", "D4.c", "E4.c")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_killed_at_every_recorded_step_comes_to_the_same_end(
    tmp_path: Path, undisturbed: Effects, when: str, part: int
) -> None:
    """Killed at each step of a half of them, at those of the resumed run too; each life goes on at once."""
    run = make_feature_run(tmp_path)
    told = lives(run, when, f"{part}/{PARTS}")
    taken = {step for step in told["took"] if is_meant(step, f"{part}/{PARTS}")}
    assert taken <= set(told["died"])
    # A result that was lost before its record is recorded again only where it is still needed
    assert all(CHECKS_RECORDED in step for step in set(told["died"]) - taken)
    # How many trees are checked depends on which package ends first
    expected = {step for step in undisturbed["steps"] if CHECKS_RECORDED not in step}
    assert taken >= {step for step in expected if is_meant(step, f"{part}/{PARTS}")}
    assert any(CHECKS_RECORDED in step for step in told["died"])
    assert any("lost" in step for step in told["died"]), (
        "control: it died in the middle of resuming, too"
    )
    check_same_end(run, undisturbed)


@pytest.mark.demand("W5.a", "W5.b", "W5.c", "W2.c", "W8.g")
def test_a_run_killed_around_its_merge_merges_once(tmp_path: Path, undisturbed: Effects) -> None:
    """In the middle of it, after it and before its record, and after the last record of all (F03, F04, H01)."""
    run = make_feature_run(tmp_path)
    begun = run.git("rev-parse", "main")
    lives(run, "moving", "main")
    assert run.git("rev-parse", "main") == begun
    moved = (run.root / "CHANGELOG.md").read_text()
    assert "Bye" in moved, "control: the person's files were being moved"
    assert (run.root / ".git/index.lock").exists(), "control: a lock file is left behind"
    run.state_file.write_bytes(b"\0" * 100)
    lives(run, "before", "workflow.happened merged")
    assert (
        run.git("log", "--first-parent", "--format=%s", "main").splitlines() == undisturbed["main"]
    )
    assert json.loads(run.state_file.read_text())["active_workflow"] is not None
    lives(run, "after", "workflow.happened completed")
    assert json.loads(run.state_file.read_text())["active_workflow"] is not None, (
        "control: the view is behind"
    )
    again = run.run("run", "--merge")
    assert (again.returncode, "no workflow is active" in again.stderr) == (4, True), again
    check_same_end(run, undisturbed)


def killed_from_outside(run: FeatureRun, events: int, *arguments: str) -> bool:
    """The program itself, killed when so many events are on record, whatever it does then; False if it was faster."""
    with subprocess.Popen(
        run.argv(*arguments), cwd=run.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        location = run.project.location  # found once: looking must not hold up what it looks at
        eventually(
            lambda: recorded_in(location) >= events or process.poll() is not None, within_s=300
        )
        process.kill()
    return process.returncode == -signal.SIGKILL


def check_survives(folder: Path, nth: int, undisturbed: Effects) -> None:
    """Killed twice from outside, the second time while it goes on from the first."""
    run = make_feature_run(folder)
    events = 1 + nth * undisturbed["events"] // MOMENTS
    assert (
        killed_from_outside(run, events, "run", TYPE, DESCRIPTION, "--merge")
        or run.recorded() == undisturbed["events"]
    )
    resume = ("run", "--merge") if run.recorded() else ("run", TYPE, DESCRIPTION, "--merge")
    more = random.Random(SEED + nth).randint(1, 12)
    if killed_from_outside(run, run.recorded() + more, *resume):
        last = run.run("run", "--merge")
        assert last.returncode == 0 or "no workflow is active" in last.stderr, last
    check_same_end(run, undisturbed)


@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize("nth", random.Random(SEED).sample(range(MOMENTS), 3))
def test_a_run_killed_from_outside_and_killed_again_comes_to_the_same_end(
    tmp_path: Path, undisturbed: Effects, nth: int
) -> None:
    check_survives(tmp_path, nth, undisturbed)


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize("nth", range(MOMENTS))
def test_a_run_killed_from_outside_at_any_moment_comes_to_the_same_end(
    tmp_path: Path, undisturbed: Effects, nth: int
) -> None:
    check_survives(tmp_path, nth, undisturbed)


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.b", "W5.c", "W2.c", "D4.c")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_killed_wherever_it_is_about_to_do_something_comes_to_the_same_end(
    tmp_path: Path, undisturbed: Effects, part: int
) -> None:
    """Between the records, too: before each program that is started and each change of a folder (F02)."""
    run = make_feature_run(tmp_path)
    assert len(lives(run, "doing", f"{part}/{PARTS}")["died"]) > 60
    check_same_end(run, undisturbed)


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.b", "W5.c", "W2.c")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("part", range(SMALL_PARTS))
def test_a_run_killed_at_a_few_recorded_steps_comes_to_the_same_end(
    tmp_path: Path, undisturbed: Effects, when: str, part: int
) -> None:
    """All steps again, two or three a run: hardly another death helps it to the same end."""
    run = make_feature_run(tmp_path)
    lives(run, when, f"{part}/{SMALL_PARTS}")
    check_same_end(run, undisturbed)


@pytest.mark.demand("W5.a", "W4.i", "W8.g")
def test_a_lock_file_of_somebody_else_is_named_and_left_alone(
    tmp_path: Path, undisturbed: Effects
) -> None:
    """Nobody can prove that its owner is dead (F04). The files are as they were; without it the run goes on."""
    run = make_feature_run(tmp_path)
    lives(run, "moving", "main")
    for name, code in (("HEAD.lock", 4), ("index.lock", 1)):
        foreign = run.root / ".git" / name
        stale = run.root / ".git/index.lock"
        stale.unlink(missing_ok=True)
        foreign.write_text("somebody's")
        refused = run.run("run", "--merge")
        assert (refused.returncode, name in refused.stdout + refused.stderr) == (code, True), (
            refused
        )
        assert foreign.read_text() == "somebody's"
        assert run.git("log", "--format=%s", "main") == "Begin"
        foreign.unlink()
        assert run.git("status", "--porcelain") == ""
    assert run.run("resolve", "its git had died").returncode == 0
    assert run.run("run", "--merge").returncode == 0
    check_same_end(run, undisturbed, decided=True)
