"""A package from PLANNED to DONE, by an agent that writes one file at once, against a bare worktree."""

from __future__ import annotations

import itertools
import json
import logging
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from bench.large_repository import large_repository
from bench.measure import Row, cpu_ms
from phasegate.core.plan.work_package import PackageState
from phasegate.engine.drive.run_package import dispatch_package
from phasegate.engine.journal.package import PackageReport, find_package, load_plan
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.workspace.repository.repository import Repository

FILES, ROUNDS, GOAL = 1_000, 9, 10.0
SLUG = "001-large"
TESTS = "echo '1 passed in 0.01s'"
AGENT = """
cat > /dev/null
if [ "$PHASEGATE_PHASE" = review ]; then echo "<review>PASS</review>"; exit 0; fi
echo done > "$AGILEPLUS_WP_ID.txt"
echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "'$AGILEPLUS_WP_ID'", "success": true, "status": "completed"}'
"""


def rows() -> list[Row]:
    logging.getLogger("phasegate").setLevel(logging.ERROR)
    with (
        large_repository(FILES, in_memory=False) as repository,
        tempfile.TemporaryDirectory() as state,
    ):
        os.environ["XDG_STATE_HOME"] = state
        names = [f"WP{number:02}" for number in range(1, ROUNDS + 2)]
        _prepare(repository, names)
        _dispatched(repository, names[0])  # the first makes what all the others share
        times = [
            (_dispatched(repository, name), _commands(repository), _bare(repository))
            for name in names[1:]
        ]
    whole, commands, bare = (statistics.median(column) for column in zip(*times, strict=True))
    return [
        Row(
            "dispatch of one file, 1000 files, against git worktree add + remove",
            whole - commands,
            bare,
            GOAL,
        )
    ]


def _prepare(repository: Repository, names: list[str]) -> None:
    root = repository.root
    _git(root, "reset", "--hard", "--quiet", "main")
    agent = root.parent / "agent.sh"
    agent.write_text(AGENT)
    command = json.dumps(["/bin/sh", str(agent)])
    (root / "phasegate.toml").write_text(
        f'[agents.actor]\nharness = "command"\ncommand = {command}\n'
    )
    tasks = root / "kitty-specs" / SLUG / "tasks"
    tasks.mkdir(parents=True)
    for name in names:
        (tasks / f"{name}.md").write_text(_document(name))
    project = open_project(root)
    with open_project_store(project) as store:
        load_plan(project, store, tasks.parent)


def _document(name: str) -> str:
    front = {
        "work_package_id": name,
        "title": f"Write {name}",
        "feature_slug": SLUG,
        "file_scope": [f"{name}.txt"],
        "deliverables": {"code": [f"{name}.txt"]},
        "checks": {"test": TESTS},
    }
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in front.items())
    return f"---\n{lines}\n---\n# Task: {name}\n\n## Mission\nWrite it.\n"


def _dispatched(repository: Repository, name: str) -> float:
    def whole() -> None:
        project = open_project(repository.root)
        with open_project_store(project) as store:
            one = find_package(store, name, SLUG)
            report = dispatch_package(project, store, one, agent=None, report_line=lambda _: None)
            assert isinstance(report, PackageReport)
        assert report.state is PackageState.DONE, report

    return cpu_ms(whole)


def _commands(repository: Repository) -> float:
    """What the agents and the checks cost by themselves: two agents, the tests before and after the work."""
    agent = ["/bin/sh", str(repository.root.parent / "agent.sh")]
    with tempfile.TemporaryDirectory() as room:

        def alone() -> None:
            for argv in (agent, agent, ["/bin/sh", "-c", TESTS], ["/bin/sh", "-c", TESTS]):
                subprocess.run(argv, cwd=room, check=True, input=b"", capture_output=True)

        return cpu_ms(alone)


_numbers = itertools.count()


def _bare(repository: Repository) -> float:
    folder = Path(repository.root.parent, f"bare{next(_numbers)}")

    def bare() -> None:
        _git(repository.root, "worktree", "add", "--quiet", "--detach", str(folder))
        _git(repository.root, "worktree", "remove", str(folder))

    return cpu_ms(bare)


def _git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)
