"""The repository of a demo, from the files that ship with us, and what must hold when its feature is merged."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

from phasegate.core.workflow.lifecycle import Stage
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import Project, Store, open_project
from phasegate.errors import EnvironmentUnavailable
from phasegate.sandbox.environment import scrubbed
from phasegate.sandbox.run_program import run
from phasegate.storage.audit import verify
from phasegate.storage.rows import Job

Claim = tuple[str, bool]


def claims_after_merge(project: Project, store: Store, slug: str, code: int) -> Iterator[Claim]:
    """Each claim about a finished demo, and whether it holds."""
    root, feature = project.root, read_feature(store, slug)
    completed = feature is not None and feature.workflow.stage is Stage.COMPLETED and code == 0
    yield f"the workflow is completed: {len(store.gates(slug))} checks of gates", completed
    failed = [gate.phase for gate in store.gates(slug) if gate.outcome == "failed"]
    yield "the plan was revised once, after its critic's findings", failed == ["01-requirements"]
    rounds = {row.id: (row.state, row.round) for row in store.packages(slug)}
    expected = {"WP01": ("DONE", 1), "WP02": ("DONE", 2), "WP03": ("DONE", 1)}
    yield "three packages are done, one of them after a requested change", rounds == expected
    yield "two packages ran at the same time", _overlap(store.jobs(slug), "WP01", "WP02")
    merged = git(root, "log", "--first-parent", "--format=%s", "main").splitlines()
    yield "main has one new commit, the merge", merged[1:] == ["Begin"] and merged[0].startswith(slug)
    tested = run([sys.executable, "-B", "-m", "unittest"], cwd=root, env=scrubbed())
    yield "the tests pass on main", tested.exit_code == 0 and b"Ran 7 tests" in tested.stderr
    clean = git(root, "status", "--porcelain") == "" and git(root, "branch", "--format=%(refname:short)") == "main\n"
    yield "the checkout is clean, and no branch is left", clean
    left = [path.name for path in project.worktrees.iterdir() if not path.name.startswith(".pool")]
    yield "no worktree is left", not left
    audit = verify(project.location)
    yield f"the audit trail verifies: {audit.entries} entries", not audit.problems


def _overlap(jobs: list[Job], one: str, other: str) -> bool:
    """Whether jobs of two packages ran at the same time, by our own clock."""
    spans = {name: [(job.started, job.ended) for job in jobs if job.wp == name] for name in (one, other)}
    return any(a[0] < b[1] and b[0] < a[1] for a in spans[one] for b in spans[other])


def make_demo_project(folder: Path, parts: tuple[str, ...], scenario: str) -> Project:
    """A small real project under git, from the files that ship with us."""
    root = folder / "repository"
    with as_file(files("phasegate.prompts") / "demo") as shipped:
        for part in parts:
            shutil.copytree(shipped / part, root, dirs_exist_ok=True)
        shutil.copyfile(shipped / scenario, root / "scenario.toml")
    (root / "gitignore.txt").rename(root / ".gitignore")
    for path in root.glob("*.py.txt"):
        path.rename(path.with_suffix(""))
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "config", "user.name", "Demo")
    git(root, "config", "user.email", "demo@example.invalid")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "Begin")
    project = open_project(root)
    # The heads of the audit trail are kept outside the repository; those of a demo go with it.
    return project._replace(location=project.location._replace(state_home=folder / "state" / "phasegate"))


def git(folder: Path, *arguments: str) -> str:
    """What git answers, with nothing of the person's own settings."""
    done = run(["git", *arguments], cwd=folder, env=scrubbed(given={"GIT_CONFIG_GLOBAL": os.devnull}))
    if done.exit_code:
        said = done.stderr.decode(errors="replace").strip()
        raise EnvironmentUnavailable(f"git {arguments[0]}: {said}", "try it by hand: git init")
    return done.stdout.decode(errors="replace")
