"""The person at the worst moment: what they delete while an agent works is kept, and the message says how to go on."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from support.dispatch_project import (
    FEATURE,
    SLUG,
    DispatchProject,
    approves,
    implements,
    make_project,
    package,
    turn,
)
from support.quick_dispatch import ECHO
from support.sandboxed import eventually

pytestmark = pytest.mark.skipif(
    not probe_level(SandboxLevel.WORKTREE).is_supported,
    reason="without a sandbox, what a person changes meanwhile blocks the package",
)
FORM, PACKAGE = "src/login.ts", f"{FEATURE}-WP01"


def in_its_second_round(folder: Path) -> DispatchProject:
    """The work of the first round is on the package's branch; in the second, an agent waits to be told to go on."""
    project = make_project(folder, {"WP01": package(test=ECHO)})
    waits = {"run": "touch src/here; until test -e src/go; do sleep 0.02; done; rm src/here src/go"}
    project.play(
        implements(FORM, round=1),
        turn("review", {"verdict": "NEEDS_CHANGES"}, round=1),
        turn(
            "implement",
            waits,
            {"write": FORM, "content": "second\n"},
            {"result": "success"},
            round=2,
        ),
        approves(round=2),
    )
    return project


@pytest.mark.demand("W5.c")
@pytest.mark.parametrize("order", ["branch -D {}", "branch -m {} elsewhere"])
@pytest.mark.parametrize("branch", [PACKAGE, FEATURE])
def test_a_branch_that_goes_while_an_agent_works_is_kept_and_can_be_gone_on_with(
    tmp_path: Path, branch: str, order: str
) -> None:
    project = in_its_second_round(tmp_path)
    checkout = project.root / ".worktrees" / f"{SLUG}-WP01"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(project.program, "dispatch", "WP01")
        assert eventually((checkout / "src/here").exists)
        held = project.git("rev-parse", branch)
        project.git(*order.format(branch).split())
        lost = project.git("commit-tree", "-m", "nobody keeps this", f"{held}^{{tree}}")
        project.git("reflog", "expire", "--expire=now", "--all")
        project.git("gc", "--quiet", "--prune=now")
        (checkout / "src/go").touch()
        done = first.result()
    assert done.code == 4
    assert f"the branch {branch} was deleted or renamed" in done.stderr
    assert project.git("cat-file", "-t", held) == "commit"
    with pytest.raises(Exception, match=lost):
        project.git("cat-file", "-t", lost)  # the control: what nothing keeps is gone
    put_back = re.search(r"repeat the command: git (branch \S+ [0-9a-f]+)", done.stderr)
    assert put_back is not None, done.stderr
    project.git(*put_back[1].split())
    again = project.command("dispatch", "WP01")
    assert (again.code, "WP01 DONE" in again.stdout) == (0, True), again.stderr
    assert project.git("show", f"{FEATURE}:{FORM}") == "second"
    assert len(project.jobs()) == 4, "no agent's run was repeated"


@pytest.mark.demand("W5.c")
def test_a_feature_s_branch_that_is_gone_is_not_made_anew_without_its_work(tmp_path: Path) -> None:
    documents = {"WP01": package(test=ECHO), "WP02": package("WP02", ["src/second.ts"], test=ECHO)}
    project = make_project(tmp_path, documents)
    project.play(
        implements(FORM, package="WP01"), implements("src/second.ts", package="WP02"), approves()
    )
    assert project.command("dispatch", "WP01").code == 0
    project.git("branch", "-D", FEATURE)
    refused = project.command("dispatch", "WP02")
    assert (refused.code, f"the branch {FEATURE} was deleted" in refused.stderr) == (4, True), (
        refused
    )
    project.git("branch", FEATURE, f"refs/phasegate/heads/{FEATURE}")
    assert project.command("dispatch", "WP02").code == 0
    assert {FORM, "src/second.ts"} <= project.files_of(FEATURE)


AT_ONCE = {
    "rm .phasegate/store.db*": "was removed while it was in use",
    "rm -rf .phasegate": "was removed while it was in use",
    "rm -rf .phasegate/jobs": "was removed while its job ran",
    "git update-ref -d refs/phasegate/audit": "was removed or moved back by another process",
    "git update-ref refs/phasegate/audit $(git hash-object -w README.md)": "contains data that Phasegate did not write",
}


@pytest.mark.demand("W5.c")
@pytest.mark.parametrize("order", AT_ONCE)
def test_a_store_or_an_anchor_that_goes_in_the_middle_of_a_run_is_told_at_once(
    tmp_path: Path, order: str
) -> None:
    project = make_project(tmp_path, {"WP01": package(test=ECHO)})
    waits = {"run": "touch src/here; until test -e src/go; do sleep 0.02; done; rm src/here src/go"}
    project.play(
        turn("implement", waits, {"write": FORM, "content": "x\n"}, {"result": "success"}),
        approves(),
    )
    checkout = project.root / ".worktrees" / f"{SLUG}-WP01"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(project.program, "dispatch", "WP01")
        assert eventually((checkout / "src/here").exists)
        subprocess.run(["/bin/sh", "-c", order], cwd=project.root, check=True)
        (checkout / "src/go").touch()
        done = first.result()
    assert done.code == 4, done
    assert AT_ONCE[order] in done.stderr
    assert "hint" in done.stderr
    if "-d refs" in order:  # goes on, and it is on record
        project.play(implements(FORM), approves())
        assert project.command("dispatch", "WP01").code == 0
        assert project.audit_problems() == []
