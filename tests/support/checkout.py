"""A small repository, and commands run in it as they are, without a sandbox: what is tested with these is the judging."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from phasegate.checks.baseline import Baseline, build_baseline
from phasegate.checks.commands import PlanRunner
from phasegate.checks.manifest import HarvestedWork, get_requested_purposes
from phasegate.checks.plan import Command, CommandPlan, CommandResult, CommandRunner
from phasegate.checks.secrets import AddedContent, keep_added_lines
from phasegate.checks.setup import SetupCacheSlot
from phasegate.core.plan.commits import Commit

# Hypothesis and anyio lie beside pytest here; their plugins take three quarters of the start.
PYTEST_ALONE = "-p no:cacheprovider -p no:hypothesispytest -p no:anyio"
PYTEST = f"python -m pytest -q {PYTEST_ALONE}"
SOURCE = "def add(a, b):\n    return a + b\n"
TESTS = "from calc import add\n\n\ndef test_adds():\n    assert add(1, 1) == 2\n"


def run_plainly(command: Command) -> CommandResult:
    """A runner as the manifest wants one. The environment is the command's own and a PATH, nothing else."""
    path = [*map(str, command.path_prefix), str(Path(sys.executable).parent), os.environ["PATH"]]
    env = {"PATH": os.pathsep.join(path), "HOME": str(command.cwd), **command.env}
    started_s = time.monotonic()
    process = subprocess.Popen(
        command.argv,
        cwd=command.cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=command.timeout_s)
        timed_out = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        timed_out = True
    status = process.returncode if process.returncode >= 0 and not timed_out else None
    return CommandResult(
        status,
        out.decode("utf-8", "replace"),
        err.decode("utf-8", "replace"),
        time.monotonic() - started_s,
        timed_out,
    )


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    return subprocess.run(
        ("git", *arguments), cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def repository(folder: Path, files: Mapping[str, str]) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, {".gitignore": "__pycache__/\n", **files})
    commit(folder, "Start")
    return folder


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def work_since(
    folder: Path, base: str, *, deliverables: tuple[str, ...] = ("calc.py",), package: str = "WP01"
) -> HarvestedWork:
    """What an agent did since a commit, as git knows it, in the repository itself, which is clean."""
    changed = tuple(git(folder, "diff", "--name-only", base, "HEAD").splitlines())
    log = git(folder, "log", "--reverse", "--format=%H %s", f"{base}..HEAD").splitlines()
    tree = [line.partition("\t") for line in git(folder, "ls-tree", "-r", "HEAD").splitlines()]
    return HarvestedWork(
        package=package,
        checkout=folder,
        deliverables=deliverables,
        changed_paths=changed,
        commits=tuple(Commit(*line.split(" ", 1)) for line in log),
        added_content=[_added(folder, base, path) for path in changed if (folder / path).is_file()],
        blobs={path: entry.split()[2] for entry, _, path in tree},
    )


def _added(folder: Path, base: str, path: str) -> AddedContent:
    old = subprocess.run(("git", "show", f"{base}:{path}"), cwd=folder, capture_output=True)
    return AddedContent(
        path, keep_added_lines(None if old.returncode else old.stdout, (folder / path).read_bytes())
    )


def plan(**changes: object) -> CommandPlan:
    """The plan of a Python project with pytest."""
    settings: dict[str, object] = {
        "commands": {"test": PYTEST},
        "timeout_s": 60.0,
        "test_reruns": 0,
        **changes,
    }
    return CommandPlan(**settings)  # type: ignore[arg-type]


def take_baseline(
    plan: CommandPlan, checkout: Path, run: CommandRunner, kept: SetupCacheSlot | None = None
) -> Baseline:
    """What the same commands say about the tree that the work starts from."""
    return build_baseline(
        PlanRunner(plan, checkout, run, kept).run_checks(get_requested_purposes(plan))
    )
