"""The tree of a project of 100 000 files, against `git ls-files`."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.measure import Row, command, in_turn
from phasegate.prompts.assemble import PromptRequest, render_project_structure
from phasegate.workspace.repository.repository import list_files

FILES = 100_000
GOAL = 6
UNTRACKED_TOO = (
    "-z",
    "--cached",
    "--others",
    "--exclude-standard",
)  # as the tree itself needs it: four times the work


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        project = Path(room)
        _make(project)
        tree = render_project_structure(
            PromptRequest("CLAUDE", "plan", "", project, list_files(project))
        )
        assert "package00/" in tree
        assert "5 000 files" in tree
        index = in_turn(_tree_of(project), command(["git", "ls-files"], project))
        same = in_turn(_tree_of(project), command(["git", "ls-files", *UNTRACKED_TOO], project))
    return [
        Row(f"tree of {FILES} files, against git ls-files of the index alone", *index, GOAL),
        Row(f"tree of {FILES} files, against git ls-files with untracked files", *same, GOAL),
    ]


def _tree_of(project: Path) -> Callable[[], object]:
    return lambda: render_project_structure(
        PromptRequest("CLAUDE", "plan", "", project, list_files(project))
    )


def _make(project: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    for number in range(FILES):
        if number % 200 == 0:
            folder = (
                project
                / f"package{number // 5_000:02}"
                / f"module{number // 200 % 25:02}"
                / "source"
            )
            folder.mkdir(parents=True)
        (folder / f"component{number % 200:03}.py").touch()
    subprocess.run(["git", "add", "--all"], cwd=project, check=True)
