"""`phasegate init` in a fresh repository and in a project, against `git init`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from bench.measure import Row, command, in_turn
from bench.peer_asks import INIT
from bench.peer_runs import peer_times

GOAL = 10
PYPROJECT = """
[build-system]
requires = ["hatchling"]
[project]
name = "thing"
[project.optional-dependencies]
test = ["pytest"]
[tool.ruff]
line-length = 100
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        empty, project = (
            make(Path(room) / "empty", {}),
            make(Path(room) / "project", {"pyproject.toml": PYPROJECT}),
        )
        git_init = fresh(Path(room))
        found = [in_turn(prepared(folder), git_init, rounds=15) for folder in (empty, project)]
        peers = (peer_times(prepared(empty), INIT), ())
        assert "[checks.python]" in (project / "phasegate.toml").read_text()
    names = (
        "init in an empty repository, against git init",
        "init in a Python project, against git init",
    )
    return [
        Row(name, ours, theirs, GOAL, peers=beside)
        for name, (ours, theirs), beside in zip(names, found, peers, strict=True)
    ]


def make(folder: Path, files: dict[str, str]) -> Path:
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def prepared(folder: Path) -> Callable[[], object]:
    """Prepare the repository as if for the first time."""
    run = command([str(Path(sys.executable).with_name("phasegate")), "init"], folder)

    def work() -> None:
        (folder / "phasegate.toml").unlink(missing_ok=True)
        (folder / "agentd/project.md").unlink(missing_ok=True)
        (folder / ".git/info/exclude").unlink(missing_ok=True)
        run()

    return work


def fresh(room: Path) -> Callable[[], object]:
    """`git init` of another folder each time."""
    numbers = count()

    def work() -> None:
        subprocess.run(["git", "init", "--quiet", str(room / f"made-{next(numbers)}")], check=True)

    return work
