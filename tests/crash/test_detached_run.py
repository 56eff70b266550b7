"""`run --detach` and `stop`: a run that outlives its terminal, and its end, with real processes."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

import pexpect
import pytest

from phasegate.storage.lock import feature_lock
from phasegate.storage.lock_holder import find_live_holder, list_live_holders
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    Turn,
    make_feature_run,
)
from support.sandboxed import eventually, processes_with

HALF = f"kitty-specs/{SLUG}/proposal.md"
SLOW: Turn = {"phase": "plan", "steps": [{"write": HALF, "content": "half\n"}, {"sleep_s": 600}]}


def standing(run: FeatureRun) -> str:
    return str(json.loads(run.run("status", "--json").stdout)["workflow"]["standing"])


def is_at_work(run: FeatureRun) -> bool:
    return (run.root / ".worktrees" / f"{SLUG}-01-requirements" / HALF).exists()


@pytest.mark.demand("W5.a", "W4.e")
def test_a_detached_run_outlives_its_terminal_is_refused_twice_and_is_stopped(
    tmp_path: Path,
) -> None:
    run = make_feature_run(tmp_path)
    run.play(SLOW)
    trap = run.root / "phasegate.py"
    trap.write_text("raise SystemExit('a file of the repository was taken for ours')\n")
    terminal = pexpect.spawn(
        sys.executable,
        ["-P", "-m", "phasegate", "run", TYPE, DESCRIPTION, "--detach"],
        cwd=str(run.root),
        encoding="utf-8",
        timeout=120,
    )
    terminal.expect(rf"{SLUG} runs as process (\d+)")
    pid = int(str(terminal.match.group(1)))  # type: ignore[union-attr]  # expect returns when there is a match
    terminal.expect(r"log:\s+(\S+)\r")
    log = Path(str(terminal.match.group(1)))  # type: ignore[union-attr]
    assert eventually(lambda: is_at_work(run), within_s=120), log.read_text()
    trap.unlink()
    terminal.close(force=True)  # the terminal goes, with SIGHUP to all that is on it
    holder = find_live_holder(run.project.location.locks_folder, SLUG)
    assert holder is not None
    assert (holder.pid, os.getsid(pid), standing(run)) == (pid, pid, "working")

    again = run.run("run", "--detach")
    assert (again.returncode, f"already running: process {pid}" in again.stderr) == (4, True)
    assert "phasegate stop" in again.stderr

    stopped = run.run("stop", "--json")
    assert stopped.returncode == 0, stopped
    report = json.loads(stopped.stdout)
    assert (report["feature"], report["ended"], [one["pid"] for one in report["processes"]]) == (
        SLUG,
        True,
        [pid],
    )
    assert eventually(lambda: processes_with(str(run.folder)) == [])
    assert standing(run) == "stopped"
    assert [job.outcome for job in run.jobs()] == ["lost"]
    assert f"{SLUG} is stopped" in log.read_text()

    for arguments in ((), ("--feature", SLUG)):
        refused = run.run("stop", *arguments)
        assert (refused.returncode, "nothing is running" in refused.stderr) == (4, True)


@pytest.mark.demand("W5.a")
def test_a_detached_run_comes_to_its_end_by_itself(tmp_path: Path) -> None:
    run = make_feature_run(tmp_path)
    run.play(*SCENARIO)
    begun = run.run("run", TYPE, DESCRIPTION, "--detach", "--step", "--json")
    assert begun.returncode == 0, begun
    told = json.loads(begun.stdout)
    assert eventually(
        lambda: find_live_holder(run.project.location.locks_folder, SLUG) is None, within_s=240
    )
    assert standing(run) == "stopped"  # at its first gate
    assert "GATE-01" in Path(told["log"]).read_text()


def test_a_detached_run_that_is_refused_says_why(tmp_path: Path) -> None:
    run = make_feature_run(tmp_path)
    run.run("start", TYPE, DESCRIPTION)
    with (run.project.location.locks_folder / f"feature-{SLUG}.lock").open("r+b") as lock:
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # held by one that has not signed yet: only the new process finds out
        refused = run.run("run", "--detach")
    assert refused.returncode == 4
    assert "ended immediately (exit 4)" in refused.stderr
    assert "another process holds its lock" in refused.stderr


def test_a_run_that_is_refused_with_the_feature_in_its_hands_says_so_where_it_was_started(
    tmp_path: Path,
) -> None:
    run = make_feature_run(tmp_path)
    run.play(*SCENARIO)
    run.run("start", TYPE, DESCRIPTION)
    settings = run.root / "phasegate.toml"
    text = settings.read_text()
    settings.write_text(
        text.replace('harness = "scripted"', 'harness = "command"\ncommand = ["./gone"]')
    )
    refused = run.run("run", "--detach")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "ended immediately (exit 2): phasegate: no agent can be started" in refused.stderr
    settings.write_text(text)
    begun = run.run("run", "--detach", "--step")  # the control
    assert (begun.returncode, f"{SLUG} runs as process" in begun.stdout) == (0, True)
    assert eventually(
        lambda: find_live_holder(run.project.location.locks_folder, SLUG) is None, within_s=240
    )


def test_stop_never_signals_a_process_that_only_has_the_number_of_the_holder(
    tmp_path: Path,
) -> None:
    run = make_feature_run(tmp_path)
    run.run("start", TYPE, DESCRIPTION)
    locks = run.project.location.locks_folder
    lock = locks / f"feature-{SLUG}.lock"
    with feature_lock(locks, SLUG, "run", "now"):
        signed = lock.read_bytes()
        assert [*list_live_holders(locks)] == [SLUG]  # the control: this process holds it
    later = json.loads(signed) | {"process_start": "1"}
    lock.write_text(json.dumps(later))
    refused = run.run("stop")  # it would end this very process
    assert (refused.returncode, "nothing is running" in refused.stderr) == (4, True)
