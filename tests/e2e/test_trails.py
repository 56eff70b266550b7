"""The trails of a whole run tell what happened, in its order and at its time (D13)."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from support.dispatch_project import make_project
from support.trail_story import expect_stories, trails_of

PHASEGATE = [sys.executable, "-m", "phasegate"]


@pytest.mark.demand("D13.a", "D13.b", "D13.c", "D13.j", "D13.k", "D13.l")
def test_the_trails_of_the_demo_tell_each_file_commit_and_test_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = subprocess.run(
        [*PHASEGATE, "demo", "--keep", str(tmp_path / "demo")], capture_output=True, text=True
    )
    assert played.returncode == 0, played.stdout + played.stderr
    root = tmp_path / "demo/repository"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "demo/state"))
    first = subprocess.run(
        ["git", "rev-list", "--max-parents=0", "main"], cwd=root, capture_output=True, text=True
    )
    (slug,) = (path.name for path in (root / ".phasegate/audit").iterdir())
    trails = trails_of(root)
    # The merge delivers a rewritten history; trails are about the branch as the agents made it.
    expect_stories(trails, root, first.stdout.strip(), slug, f"refs/phasegate/features/{slug}")
    shown = subprocess.run(
        [*PHASEGATE, "audit", "show"], cwd=root, capture_output=True, text=True
    ).stdout
    assert len(shown.splitlines()) == len(trails)
    assert ", implement, round 1, author, done  " in shown
    job = next(job for job, entries in trails.items() if any(line.get("tests") for line in entries))
    story = subprocess.run(
        [*PHASEGATE, "audit", "show", "--job", job], cwd=root, capture_output=True, text=True
    ).stdout
    assert f"job {job} of {slug}: " in story.splitlines()[0]
    assert (
        story.index("read_spec")
        < story.index("write_file")
        < story.index("exit ")
        < story.index("run_tests")
    )


DEAF = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("src/login.ts").write_text("export {}")
time.sleep(600)
"""


@pytest.mark.demand("D13.j", "D9.e")
def test_signals_are_noted_when_they_are_sent(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(DEAF)
    command = json.dumps([sys.executable, str(program)])
    project = make_project(
        tmp_path, harness=f'harness = "command"\ncommand = {command}\ntimeout_s = 4'
    )
    project.command("dispatch", "WP01")
    (job,) = project.jobs()
    entries = {entry["action"]: entry for entry in project.trail(job.id)}
    assert [name for name in entries if name not in ("read_spec", "answer")] == [
        "start",
        "told_to_stop",
        "killed",
        "write_file",
        "exit",
    ]
    moment = {
        name: datetime.fromisoformat(entry["ts"]).timestamp() for name, entry in entries.items()
    }
    assert moment["told_to_stop"] - moment["start"] >= 0.9 * 4
    assert moment["killed"] - moment["start"] >= 4
    assert (
        moment["start"]
        < datetime.fromisoformat(entries["write_file"]["at"]).timestamp()
        < moment["told_to_stop"]
    )
    assert (entries["told_to_stop"]["signal"], entries["killed"]["signal"]) == (
        "SIGTERM",
        "SIGKILL",
    )
    assert (entries["exit"]["signal"], entries["exit"]["actor"]) == (9, "agent:command")
