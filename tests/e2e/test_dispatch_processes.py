"""What a dispatch of one file costs beside its agents: counted, so that no stop-watch has to judge it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from support.dispatch_project import approves, implements, make_project, package
from support.quick_dispatch import ECHO

COUNTED = """
import os, sys
def count(event, arguments):
    if event == "subprocess.Popen":
        with open(os.environ["STARTED"], "a") as file:
            file.write(f"{os.path.basename(os.fsdecode(arguments[0]))}\\n")
sys.addaudithook(count)
"""
# Bounds, not counts: about 60 git processes and 7 others are started at this time.
MAX_GIT_PROCESSES = 64
MAX_OTHER_PROCESSES = 9


@pytest.mark.demand("D4.a")
@pytest.mark.skipif(
    not probe_level(SandboxLevel.OFFLINE).is_supported,
    reason="without a sandbox we look outside of the checkout too, with more of git",
)
def test_a_dispatch_of_one_file_starts_few_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path, {"WP01": package(files=["src/login.ts"], test=ECHO)})
    project.play(implements("src/login.ts"), approves())
    (tmp_path / "counted").mkdir()
    (tmp_path / "counted/sitecustomize.py").write_text(COUNTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "counted"))
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    done = project.program("dispatch", "WP01", "--json")
    assert done.json["state"] == PackageState.DONE, done.stderr
    started = (tmp_path / "started").read_text().split()
    git, others = started.count("git"), [name for name in started if name != "git"]
    assert 0 < git <= MAX_GIT_PROCESSES, started
    assert 0 < len(others) <= MAX_OTHER_PROCESSES, others
    assert {name for name in others if name.startswith("python")} <= {
        Path(sys.executable).resolve().name
    }
