"""Create the repository of a demo from the shipped files, and check its merged feature."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import Project, Store, open_project
from phasegate.errors import EnvironmentUnavailable
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.run_program import run_program
from phasegate.storage.rows import JobRow
from phasegate.storage.verify_audit import verify_audit

DemoCheck = tuple[str, bool]


def check_merged_demo(project: Project, store: Store, slug: str, code: int) -> Iterator[DemoCheck]:
    """Yield each claim about a finished demo, and whether it is true."""
    root = project.root
    feature = read_feature(store, slug)
    completed = feature is not None and feature.workflow.stage is Stage.COMPLETED and code == 0
    yield f"the workflow is completed: {len(store.gates(slug))} gate checks", completed
    failed = [gate.phase for gate in store.gates(slug) if gate.outcome == "failed"]
    yield "the plan was revised once, after the critic's findings", failed == ["01-requirements"]
    rounds = {row.id: (row.state, row.round) for row in store.packages(slug)}
    expected = {"WP01": ("DONE", 1), "WP02": ("DONE", 2), "WP03": ("DONE", 1)}
    yield "three packages are done, one of them after a requested change", rounds == expected
    yield "two packages ran at the same time", _ran_concurrently(store.jobs(slug), "WP01", "WP02")
    merged = run_git(root, "log", "--first-parent", "--format=%s", "main").splitlines()
    yield (
        "main has one new commit, the merge",
        merged == ["Say goodbye", "Begin"],
    )
    tested = run_program(
        [sys.executable, "-B", "-m", "unittest"], cwd=root, env=build_environment()
    )
    yield "the tests pass on main", tested.exit_code == 0 and b"Ran 7 tests" in tested.stderr
    clean = (
        run_git(root, "status", "--porcelain") == ""
        and run_git(root, "branch", "--format=%(refname:short)") == "main\n"
    )
    yield "the checkout is clean, and no branch is left", clean
    left = [
        path.name
        for path in project.worktrees_folder.iterdir()
        if not path.name.startswith(".pool")
    ]
    yield "no worktree is left", not left
    audit = verify_audit(project.location)
    yield f"the audit trail verifies: {audit.entries} entries", not audit.problems


def _ran_concurrently(jobs: list[JobRow], one: str, other: str) -> bool:
    """Return whether jobs of two packages overlapped in time."""
    return any(
        a.started < b.ended and b.started < a.ended
        for a in jobs
        for b in jobs
        if a.wp == one and b.wp == other
    )


def make_demo_project(folder: Path, parts: tuple[str, ...], scenario: str) -> Project:
    """Create a small git project from the shipped files."""
    root = folder / "repository"
    with as_file(files("phasegate.prompts") / "demo") as shipped:
        for part in parts:
            shutil.copytree(shipped / part, root, dirs_exist_ok=True)

        shutil.copyfile(shipped / scenario, root / "scenario.toml")

    (root / "gitignore.txt").rename(root / ".gitignore")
    for path in root.glob("*.py.txt"):
        path.rename(path.with_suffix(""))

    run_git(root, "init", "--quiet", "--initial-branch=main")
    run_git(root, "config", "user.name", "Demo")
    run_git(root, "config", "user.email", "demo@example.invalid")
    run_git(root, "add", "--all")
    run_git(root, "commit", "--quiet", "-m", "Begin")
    project = open_project(root, is_own=True)

    # Chain heads are stored outside the repository; those of a demo are removed with it.
    return project._replace(
        location=project.location._replace(state_home=folder / "state" / "phasegate")
    )


def run_git(folder: Path, *arguments: str) -> str:
    """Return git's output, run without the user's settings."""
    result = run_program(
        ["git", *arguments],
        cwd=folder,
        env=build_environment(values={"GIT_CONFIG_GLOBAL": os.devnull}),
    )
    if result.exit_code:
        output = result.stderr.decode(errors="replace").strip()
        raise EnvironmentUnavailable(f"git {arguments[0]}: {output}", "try manually: git init")

    return result.stdout.decode(errors="replace")
