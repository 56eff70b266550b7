"""A job reads the objects that its commit reaches: no stash, no private branch, nothing thrown away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.sandbox.request import SandboxLevel
from phasegate.workspace.checkout.visible_objects import (
    add_visible_objects,
    get_visible_objects_folder,
)
from support.dispatch_project import DispatchProject, approves, make_project, turn, writes
from support.entry import phasegate
from support.git_project import git, make_checkout, make_repository, write
from support.sandboxed import need

CANARY = "canary-private-4711"


def make_private_objects(root: Path) -> dict[str, str]:
    """Objects of a user that no feature starts from, by kind."""
    branch = git(root, "branch", "--show-current").strip()
    private = {}
    git(root, "switch", "-q", "-c", "private")
    (root / "private.txt").write_text(f"{CANARY} branch\n")
    git(root, "add", "private.txt")
    git(root, "commit", "-qm", f"{CANARY} message")
    git(root, "tag", "-a", "private-tag", "-m", CANARY)
    private["branch"] = git(root, "rev-parse", "HEAD:private.txt").strip()
    private["tag"] = git(root, "rev-parse", "private-tag").strip()
    git(root, "commit", "-q", "--amend", "-m", "Another message")
    private["reset"] = git(root, "rev-parse", "HEAD@{1}").strip()
    git(root, "switch", "-q", branch)
    (root / "stashed.txt").write_text(f"{CANARY} stash\n")
    git(root, "add", "stashed.txt")
    private["stash"] = git(root, "rev-parse", ":stashed.txt").strip()
    git(root, "stash", "-q")
    return private


def test_a_checkout_has_what_its_commit_reaches_and_nothing_else(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    git(repository.root, "tag", "reached")
    private = make_private_objects(repository.root)
    checkout = make_checkout(repository)
    for kind, name in private.items():
        assert CANARY in git(repository.root, "cat-file", "-p", name), f"the control: {kind}"
        assert git(checkout.folder, "cat-file", "-p", name, check=False) == "", kind
    everything = git(checkout.folder, "cat-file", "--batch", "--batch-all-objects")
    assert CANARY not in everything
    assert CANARY in git(repository.root, "cat-file", "--batch", "--batch-all-objects")
    assert git(checkout.folder, "tag").split() == ["reached"]
    assert git(checkout.folder, "log", "--format=%H", "reached")
    assert git(checkout.folder, "fsck", "--full", "--strict") == ""


@pytest.mark.parametrize("level", ["worktree", "offline"])
def test_no_job_reads_private_objects_in_the_sandbox(tmp_path: Path, level: str) -> None:
    need(SandboxLevel.OFFLINE)
    project = make_project(tmp_path, run=f'sandbox = "{level}"')
    names = " ".join(make_private_objects(project.root).values())
    look = (
        f"for one in {names}; do git cat-file -p $one; done; git log --all --format=%B; "
        f"cat {project.root}/.git/objects/pack/*; find {project.root}/.git -name '*.pack'; true"
    )
    project.play(
        turn(
            "implement",
            *writes("src/login.ts"),
            {
                "run": [
                    "sh",
                    "-c",
                    f"({look}) > src/seen.txt 2>&1; git log --format=%H >> src/seen.txt",
                ]
            },
            {"commit": "{wp_id}: Look"},
            {"result": "success"},
        ),
        approves(),
    )
    project.command("dispatch", "WP01")
    seen = find_seen(project)
    assert CANARY not in seen
    start = git(project.root, "rev-parse", "HEAD").strip()
    assert start in seen, "the control: the history of the commit is there"
    assert ".git/objects" not in seen.replace(f"{project.root}/.git/objects/pack/*", "")


@pytest.mark.parametrize("hidden", [True, False])
def test_no_command_of_the_project_reads_private_objects(tmp_path: Path, hidden: bool) -> None:
    need(SandboxLevel.OFFLINE)
    repository = make_repository(tmp_path / "project")
    root = repository.root
    private = make_private_objects(root)["stash"]
    name = private if hidden else git(root, "rev-parse", "HEAD").strip()
    # Red if the object is there
    line = f"git log -1 && ! git cat-file -e {name}"
    settings = f'[checks.python]\nsetup = ""\ntest = ""\nlint = {json.dumps(line)}\n'
    write(root, {"phasegate.toml": settings, "pyproject.toml": '[project]\nname = "x"\n'})
    git(root, "add", "--all")
    git(root, "commit", "-qm", "Add settings")
    done = phasegate("check", cwd=root)
    assert (done.code == 0) is hidden, done


def find_seen(project: DispatchProject) -> str:
    found = [*project.root.glob(".worktrees/*/src/seen.txt")]
    if found:
        return found[0].read_text(errors="replace")
    branches = git(project.root, "for-each-ref", "--format=%(refname)").split()
    texts = [git(project.root, "show", f"{name}:src/seen.txt", check=False) for name in branches]
    return max(texts, key=len)


def test_the_objects_are_there_again_after_an_earlier_start_was_pruned(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    root = repository.root
    first = git(root, "rev-parse", "HEAD").strip()
    git(root, "commit", "-q", "--allow-empty", "-m", "Passing")
    passing = git(root, "rev-parse", "HEAD").strip()
    add_visible_objects(repository, [passing])
    git(root, "reset", "-q", "--hard", first)
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    git(root, "commit", "-q", "--allow-empty", "-m", "Next")
    add_visible_objects(repository, [git(root, "rev-parse", "HEAD").strip()])
    checkout = make_checkout(repository)
    assert git(checkout.folder, "fsck", "--full", "--strict", "--no-dangling") == ""


def test_many_starts_leave_few_packs(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    packs = get_visible_objects_folder(repository) / "pack"
    for number in range(60):
        git(repository.root, "commit", "-q", "--allow-empty", "-m", str(number))
        add_visible_objects(repository, [git(repository.root, "rev-parse", "HEAD").strip()])
        assert len([*packs.glob("*.pack")]) <= 51
    checkout = make_checkout(repository)
    assert git(checkout.folder, "fsck", "--full", "--strict") == ""
    assert len(git(checkout.folder, "log", "--format=%s").splitlines()) >= 60
