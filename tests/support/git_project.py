"""A person's repository, and an agent at work in a checkout of it: real git, in a folder of the test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from phasegate.git import Identity
from phasegate.workspace.changes.changes import Observation, observe_checkout
from phasegate.workspace.changes.harvest import Harvest, harvest_checkout
from phasegate.workspace.checkout.checkout import Assignment, Checkout
from phasegate.workspace.checkout.checkout_creation import CheckoutOptions
from phasegate.workspace.checkout_lifecycle import ensure_checkout, ensure_feature_branch
from phasegate.workspace.repository.merge import AlreadyMerged, PreparedMerge
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.refs import SAVED_PREFIX, RefMoved, advance_branch
from phasegate.workspace.repository.repository import (
    Repository,
    is_ancestor,
    open_repository,
    read_refs,
)
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.user_checkout import Obstacle

SLUG = "001-user-login"
AGENT = Identity("scripted", "scripted@agents.invalid")
US = Signature(Identity("Phasegate", "phasegate@localhost"), 1_800_000_000)
TERMS = CheckoutOptions(AGENT, US, set_aside=("WP01.md",))
FILES = {
    "src/login.py": "def login():\n    return False\n",
    "src/auth.py": "def auth():\n    return True\n",
    "docs/guide.md": "# Guide\n",
    ".gitignore": "*.log\nbuild/\n",
    "README.md": "A project\n",
}


def git(
    folder: Path, *arguments: str, check: bool = True, env: Mapping[str, str] | None = None
) -> str:
    """Plain git, as a person or an agent runs it."""
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, env=environment)
    if check and done.returncode != 0:
        raise AssertionError(f"git {' '.join(arguments)}: {os.fsdecode(done.stderr)}")
    return os.fsdecode(done.stdout)


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def make_repository(folder: Path, files: Mapping[str, str | bytes] = FILES) -> Repository:
    """A repository with one commit on `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    write(folder, files)
    git(folder, "add", "-A", "--force")
    git(folder, "commit", "-qm", "Begin")
    return open_repository(folder)


def saved_work(repository: Repository, name: str) -> dict[str, str]:
    """The refs under which work of a checkout was kept, each with its commit."""
    return read_refs(repository, f"{SAVED_PREFIX}{name}")


def make_checkout(
    repository: Repository, work: str = "WP01", agent_index: int | None = None
) -> Checkout:
    """A checkout for a package of a feature that has just begun."""
    ensure_feature_branch(repository, SLUG, "main")
    return ensure_checkout(repository, Assignment(SLUG, work, agent_index), TERMS)


def seen_in(checkout: Checkout) -> Observation:
    seen = observe_checkout(checkout)
    assert isinstance(seen, Observation), seen
    return seen


def take_over(
    checkout: Checkout, allowed: Collection[str] | Callable[[str], bool], title: str = "WP01: rest"
) -> Harvest:
    """Observe and harvest in one."""
    permits = allowed if callable(allowed) else frozenset(allowed).__contains__
    done = harvest_checkout(checkout, seen_in(checkout), permits, committer=US, title=title)
    assert isinstance(done, Harvest), done
    return done


def show(repository: Repository, commit: str, path: str) -> bytes:
    """The raw bytes of a path in a commit."""
    arguments = ["git", "cat-file", "blob", f"{commit}:{path}"]
    return subprocess.run(arguments, cwd=repository.root, capture_output=True, check=True).stdout


def tree(repository: Repository, commit: str) -> dict[str, str]:
    """Every path of a commit, with its mode and blob."""
    lines = git(repository.root, "ls-tree", "-r", "-z", commit).split("\0")
    entries = (line.partition("\t") for line in lines if line)
    return {path: about for about, _, path in entries}


def branch_of(checkout: Checkout) -> str:
    return git(checkout.repository.root, "rev-parse", checkout.assignment.branch).strip()


def subjects(repository: Repository, revisions: str) -> list[str]:
    """The subjects of commits, oldest first."""
    return git(repository.root, "log", "--reverse", "--format=%s", revisions).splitlines()


def finish_merge(
    repository: Repository, prepared: PreparedMerge
) -> AlreadyMerged | RefMoved | Obstacle:
    """Put a prepared merge into force, as `ports.Refs` does, and say what came of it."""
    with repository_lock(repository) as lock:
        reason = f"merge into {prepared.target}"
        stopped = advance_branch(
            repository, lock, prepared.target, prepared.target_commit, prepared.commit, reason
        )
    if (
        isinstance(stopped, RefMoved)
        and stopped.actual
        and is_ancestor(repository, prepared.commit, stopped.actual)
    ):
        return AlreadyMerged(prepared.target, stopped.actual)
    return AlreadyMerged(prepared.target, prepared.commit) if stopped is None else stopped
