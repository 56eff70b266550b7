"""Scope on a machine without bubblewrap (D6.g): nothing is held back, everything is found afterwards.

What is not enforceable there, and only seen when it is too late: reads of the person's files, writes anywhere that they
may write, the network, and writes into the checkout of a package that another agent works in at that moment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.without_bubblewrap import linked_without

from phasegate.core.plan.work_package import PackageState
from support.dispatch_project import (
    FEATURE,
    FILES,
    SLUG,
    DispatchProject,
    Step,
    approves,
    make_project,
    package,
    turn,
)
from support.quick_dispatch import ECHO

FORM = "src/login.ts"
SUCCESS: Step = {"result": "success"}
WROTE: Step = {"write": FORM, "content": "export {}\n"}
NO_SANDBOX = 'sandbox = "none"'
# Each family of scope violations (ATTACKS.md D), as what an agent does besides its work; and the path that is named.
FAMILIES = {
    "a new file": ("echo x > src/evil.ts", "src/evil.ts"),
    "another file changed": ("echo x >> src/services/auth.ts", "src/services/auth.ts"),
    "another file deleted": ("rm src/services/auth.ts", "src/services/auth.ts"),
    "committed": ("echo x > evil && git add evil && git commit -q -m 'WP01: x'", "evil"),
    "staged only": ("echo x > evil && git add evil", "evil"),
    "renamed out of scope (D04)": ("git mv src/services/auth.ts src/auth2.ts", "src/auth2.ts"),
    "a case twin (D05)": ("mkdir -p SRC && echo x > SRC/login.ts", "SRC/login.ts"),
    "a gitlink (D06)": (
        "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub && git commit -q -m 'WP01: x'",
        "sub",
    ),
    "made executable (D08)": (f"chmod +x {FORM}", FORM),
    "a link out of the tree": (f"rm {FORM}; ln -s ../../../../README.md {FORM}", FORM),
    "an agent's instructions (D10)": ("echo evil > CLAUDE.md", "CLAUDE.md"),
    "hidden by attributes (D12)": (
        "echo '* -diff export-ignore' > .gitattributes",
        ".gitattributes",
    ),
    "hidden by ignore rules": ("echo evil > .gitignore; echo x > evil", ".gitignore"),
    "the person's file": ("echo evil > {root}/README.md", "README.md"),
    "a ref of theirs (D07)": ("git -C {root} update-ref -d refs/tags/kept", "refs/tags/kept"),
    "a hook of theirs": ("echo evil > {root}/.git/hooks/pre-push", ".git/hooks/pre-push"),
}


def quick(folder: Path, *steps: Step, run: str = NO_SANDBOX) -> DispatchProject:
    documents = {"WP01": package(test=ECHO), "WP02": package("WP02", ["src/second.ts"], test=ECHO)}
    project = make_project(folder, documents, files=FILES, run=run)
    project.git("tag", "kept")
    project.play(turn("implement", WROTE, *steps, SUCCESS), approves())
    return project


@pytest.mark.demand("D6.b", "D6.c", "D6.d", "D6.e", "D6.g", "D6.h")
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_sandbox_every_family_of_scope_violations_is_found(
    tmp_path: Path, family: str
) -> None:
    line, path = FAMILIES[family]
    project = quick(tmp_path)
    project.play(
        turn("implement", WROTE, {"run": line.format(root=project.root)}, SUCCESS), approves()
    )
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert report.reason.startswith("File scope violation: ")
    assert path in report.reason
    assert FORM not in project.files_of(FEATURE)
    assert [job.phase for job in project.jobs()] == ["implement"], "nobody was asked to review it"


@pytest.mark.demand("D6.g")
def test_without_a_sandbox_an_agent_within_its_scope_is_done(tmp_path: Path) -> None:
    """The control: the same project, and nothing to find."""
    report = quick(tmp_path).dispatch()
    assert report.state is PackageState.DONE, report.reason


@pytest.mark.demand("D6.e", "D6.g")
def test_without_a_sandbox_a_write_into_the_checkout_of_an_idle_package_is_found(
    tmp_path: Path,
) -> None:
    project = quick(tmp_path)
    project.play(
        turn("implement", {"result": "blocked", "blocked_reason": "Stuck"}, package="WP02")
    )
    assert project.dispatch("WP02").state is PackageState.BLOCKED
    theirs = project.root / ".worktrees" / f"{SLUG}-WP02" / "src/second.ts"
    project.play(turn("implement", WROTE, {"run": f"echo evil > {theirs}"}, SUCCESS), approves())
    report = project.dispatch("WP01")
    assert (
        report.reason
        == f"File scope violation: changed outside the worktree: .worktrees/{SLUG}-WP02/src/second.ts"
    )
    assert theirs.exists(), "it was not held back"


@pytest.mark.demand("D6.e", "D6.g")
@pytest.mark.parametrize("target", [f"{FEATURE}-WP02", FEATURE])
def test_without_a_sandbox_a_branch_that_is_in_work_cannot_be_moved_by_another_s_agent(
    tmp_path: Path, target: str
) -> None:
    """The control is in the same run: the package beside it is not blamed for the branch that we moved meanwhile."""
    project = quick(tmp_path)
    ready, moved = tmp_path / "ready", tmp_path / "moved"
    evil = "$(git -c user.name=e -c user.email=e@e commit-tree -p main -m evil main^{tree})"
    moves = f"until test -e {ready}; do sleep 0.02; done; cd {project.root}; git update-ref refs/heads/{target} {evil}"
    second: list[Step] = [
        {"run": f"touch {ready}; until test -e {moved}; do sleep 0.02; done"},
        {"write": "src/second.ts", "content": "export {}\n"},
    ]
    project.play(
        turn("implement", WROTE, {"run": f"{moves}; touch {moved}"}, SUCCESS, package="WP01"),
        turn("implement", *second, SUCCESS, package="WP02"),
        approves(),
    )
    with ThreadPoolExecutor(2) as pool:
        first, other = pool.map(project.dispatch, ("WP01", "WP02"))
    assert first.state is PackageState.BLOCKED
    assert f"refs/heads/{target}" in first.reason
    assert f"{FEATURE}-WP01" not in other.reason, "that one was moved by us"


@pytest.mark.demand("D6.e", "D10.b")
def test_a_person_s_own_edit_meanwhile_blocks_with_words_that_say_so(tmp_path: Path) -> None:
    """It cannot be told from an agent's; dispatched again, the package goes on."""
    project = quick(tmp_path)
    edits = {
        "run": f"test -e ../once || {{ echo mine > {project.root}/notes.txt; touch ../once; }}"
    }
    project.play(turn("implement", WROTE, edits, SUCCESS), approves())
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert (
        "the author of the change is unknown: if it was you, dispatch again" in report.remediation
    )
    assert project.dispatch().state is PackageState.DONE


@pytest.mark.demand("D6.f", "D6.g")
def test_a_machine_without_bubblewrap_says_so_and_finds_the_violation(tmp_path: Path) -> None:
    project = quick(tmp_path, {"run": f"echo evil > {tmp_path}/repo/README.md"}, run="")
    programs = linked_without(os.environ["PATH"], tmp_path / "bin")
    env = {**os.environ, "PATH": programs}
    assert shutil.which("bwrap", path=programs) is None
    argv = [sys.executable, "-m", "phasegate", "dispatch", "WP01"]
    done = subprocess.run(
        argv, cwd=project.root, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.stderr
    missing = "no sandbox is available (bubblewrap is not installed)"
    assert missing in done.stderr
    status = subprocess.run([*argv[:3], "status"], cwd=project.root, capture_output=True, text=True)
    assert missing in status.stdout
    assert "File scope violation: changed outside the worktree: README.md" in done.stdout
