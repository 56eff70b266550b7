"""The setup of a second package against that of the first one: a virtual environment with pip in it, made and kept."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from bench.measure import Row
from phasegate.checks.plan import Purpose
from phasegate.core.plan.work_package import WorkPackage
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.project.project import open_project

ROUNDS, GOAL = 3, 0.1
SETTINGS = '[checks.python]\nsetup = "python3 -m venv .venv && .venv/bin/python -m pip --version"\ntest = ""\nlint = "true"\n'
GIT = ("git", "-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        os.environ["XDG_STATE_HOME"] = f"{room}/state"
        root = Path(room, "repo")
        root.mkdir()
        (root / "phasegate.toml").write_text(SETTINGS)
        (root / "pyproject.toml").write_text("")
        for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "Begin")):
            subprocess.run([*GIT, *command], cwd=root, check=True, capture_output=True)
        times = [_first_and_second(root) for _ in range(ROUNDS)]
    first, second = (statistics.median(column) for column in zip(*times, strict=True))
    return [
        Row(
            "setup of a second package, against the first",
            second * 1000,
            first * 1000,
            GOAL,
            unit="ms",
        )
    ]


def _first_and_second(root: Path) -> tuple[float, float]:
    project = open_project(root)
    shutil.rmtree(project.location.data_folder / "setups", ignore_errors=True)
    taken = []
    for name in ("WP01", "WP02"):
        package = WorkPackage(
            work_package_id=name, title="", feature_slug="001-bench", file_scope=()
        )
        head = _commit_another_tree(root)
        setup = (
            PackageChecker(project, package, head)
            .run_checks(head, (Purpose.SETUP, Purpose.LINT))
            .find_check(Purpose.SETUP)
        )
        assert setup is not None
        assert setup.duration_s is not None, setup
        assert ("cache" in setup.summary) is (name == "WP02"), setup
        taken.append(setup.duration_s)
    return taken[0], taken[1]


def _commit_another_tree(root: Path) -> str:
    """Commit a change that the setup does not depend on: results of a checked tree are recorded."""
    path = root / "notes.txt"
    path.write_text(f"{path.read_text() if path.exists() else ''}again\n")
    for command in (("add", "-A"), ("commit", "-qm", "Change a file")):
        subprocess.run([*GIT, *command], cwd=root, check=True, capture_output=True)
    commit = subprocess.run(
        [*GIT, "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
    )
    return commit.stdout.strip()
