"""A small real project whose packages are dispatched: git, a configuration, a plan, and agents that play a scenario.

The checks of a package are a quick standard-library test run, so that a dispatch takes a second or two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from phasegate.engine.drive.run_package import dispatch_package
from phasegate.engine.journal.package import PackageReport, find_package, load_plan
from phasegate.engine.project.project import Project, open_project, open_project_store
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import JobRow, PackageRow
from phasegate.storage.verify_audit import verify_audit
from support.entry import Done as Done
from support.entry import phasegate
from support.git_project import git, make_repository, saved_work

SLUG = "001-user-login"
FEATURE, WP01 = f"feat/{SLUG}", f"feat/{SLUG}-WP01"
# Passes on any tree in which what is there is whole: before the work, and after it.
CHECK = """\
import pathlib
import unittest


class EveryFileIsWhole(unittest.TestCase):
    def test_no_source_says_todo(self):
        for path in pathlib.Path("src").rglob("*"):
            if path.is_file():
                self.assertNotIn("TODO", path.read_text(encoding="utf-8"), path)
"""
TEST_COMMAND = "python3 -m unittest -q check_sources"
FILES = {
    "check_sources.py": CHECK,
    "src/services/auth.ts": "export const login = () => true;\n",
    "README.md": "A project\n",
}
Step = dict[str, Any]
Turn = dict[str, Any]


def turn(phase: str, *steps: Step, **asks: object) -> Turn:
    """A turn of a scenario; `asks` are round, package, agent_index."""
    return {"phase": phase, "steps": [*steps], **asks}


def writes(*paths: str, text: str = "export const done = true;\n") -> list[Step]:
    return [{"write": path, "content": text} for path in paths]


def implements(*paths: str, **asks: object) -> Turn:
    """An implementer that writes these files, commits and says so."""
    return turn(
        "implement",
        *writes(*paths),
        {"commit": "{wp_id}: Write what is due"},
        {"result": "success"},
        **asks,
    )


def approves(**asks: object) -> Turn:
    return turn("review", {"verdict": "PASS"}, **asks)


def package(
    name: str = "WP01",
    files: Sequence[str] = ("src/login.ts",),
    test: str = TEST_COMMAND,
    **fields: object,
) -> str:
    """A package's document; its deliverables are its scope unless `file_scope` says otherwise."""
    front = {
        "work_package_id": name,
        "title": f"Do {name}",
        "feature_slug": SLUG,
        "file_scope": [*files],
        "deliverables": {"code": [*files]},
        "checks": {"test": test},
        **fields,
    }
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in front.items())
    return f"---\n{lines}\n---\n# Task: {name}\n\n## Mission\nDo it.\n"


class DispatchProject(NamedTuple):
    """A repository with a loaded plan. The scenario lies beside it: the person's checkout stays clean."""

    root: Path
    scenario: Path

    @property
    def project(self) -> Project:
        return open_project(self.root)

    def play(self, *turns: Turn) -> None:
        """Write the scenario of all agents: the first turn that fits is played."""
        self.scenario.write_text(json.dumps([*turns]), encoding="utf-8")

    def dispatch(self, name: str = "WP01", said: list[str] | None = None) -> PackageReport:
        """Dispatch in this process."""
        project = self.project
        with open_project_store(project) as store:
            one = find_package(store, name, SLUG)
            report = dispatch_package(
                project,
                store,
                one,
                agent=None,
                report_line=(said if said is not None else []).append,
            )
        assert isinstance(report, PackageReport)
        return report

    def command(self, *arguments: str) -> Done:
        """What the program's entry does with these words, in this process."""
        return phasegate(*arguments, cwd=self.root)

    def program(
        self, *arguments: str, timeout_s: float = 120, env: Mapping[str, str] | None = None
    ) -> Done:
        """The program as a person runs it, with these variables besides their own: where the process is the claim."""
        argv, variables = (
            [sys.executable, "-m", "phasegate", *arguments],
            {**os.environ, **(env or {})},
        )
        done = subprocess.run(
            argv, cwd=self.root, capture_output=True, text=True, timeout=timeout_s, env=variables
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments).strip()

    def files_of(self, branch: str) -> set[str]:
        return set(self.git("ls-tree", "-r", "--name-only", branch).splitlines())

    def rows(self) -> dict[str, PackageRow]:
        reader = open_store_reader(self.project.location)
        assert reader is not None
        with reader:
            return {row.id: row for row in reader.packages(SLUG)}

    def jobs(self) -> list[JobRow]:
        """The jobs on record, oldest first."""
        reader = open_store_reader(self.project.location)
        assert reader is not None
        with reader:
            return sorted(reader.jobs(SLUG), key=lambda job: job.started)

    def trail(self, job: str) -> list[dict[str, Any]]:
        path = self.project.location.trails_folder / SLUG / f"{job}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def prompt(self, job: str) -> str:
        """What an agent was shown."""
        return (self.project.jobs_folder / job / "prompt.xml").read_text(encoding="utf-8")

    def audit_problems(self) -> list[str]:
        return [
            f"{problem.where}: {problem.why}"
            for problem in verify_audit(self.project.location).problems
        ]

    def saved(self, name: str = f"{SLUG}-WP01") -> dict[str, str]:
        return saved_work(self.project.repository, name)

    def worktrees(self) -> set[str]:
        """The checkouts that are in use; what begins with a dot is ours."""
        folder = self.root / ".worktrees"
        return (
            {path.name for path in folder.iterdir() if not path.name.startswith(".")}
            if folder.is_dir()
            else set()
        )


def make_project(
    folder: Path,
    packages: Mapping[str, str] | None = None,
    *,
    files: Mapping[str, str | bytes] = FILES,
    agent: str = "",
    run: str = "",
    harness: str | None = None,
) -> DispatchProject:
    """A repository on `main` with a plan of these documents. `agent` and `run` are more lines of those tables."""
    root, scenario = folder / "repo", folder / "scenario.json"
    documents = packages or {"WP01": package()}
    actor = harness or f'harness = "scripted"\nscenario = {json.dumps(str(scenario))}'
    config = f"[agents.actor]\n{actor}\n{agent}\n[run]\n{run}\n"
    tasks = {f"kitty-specs/{SLUG}/tasks/{name}.md": text for name, text in documents.items()}
    make_repository(root, {**files, **tasks, "phasegate.toml": config})
    made = DispatchProject(root, scenario)
    project = made.project
    with open_project_store(project) as store:
        load_plan(project, store, root / "kitty-specs" / SLUG)
    return made
