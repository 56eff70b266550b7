"""What an agent leaves for a gate to fall for: documents that nobody could read, checks that are no longer asked for.

No agent here breaks out of anything. Each does its work, and something beside it that lets the evidence be less.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import SentBack
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.jobs.outside_monitor import CheckoutSurroundingsMonitor
from phasegate.engine.project.project import open_project_store
from support.dispatch_project import FILES as PACKAGE_FILES
from support.dispatch_project import Step, Turn, approves, make_project, package, turn, writes
from support.feature_project import (
    APPROVES,
    ARCHIVES,
    BUILDS,
    BYE,
    DESCRIPTION,
    FOLDER,
    SLUG,
    TEST,
    FeatureProject,
    builds,
    document,
    file,
    make_feature_project,
)

SPEC = f"{FOLDER}/spec.md"
QUICK = ("01-requirements", "06-implementation", "08-code-review")
SUCCESS: Step = {"result": "success"}


def writer(*then: Step, **asks: object) -> Turn:
    """A writer that delivers what the gate asks for, and then does something else."""
    documents = (document(name) for name in ("proposal.md", "spec.md", "tasks.md"))
    return turn("plan", *documents, *then, {"verdict": "PASS"}, workflow_phase=QUICK[0], **asks)


def careless(project: FeatureProject) -> bool:
    """The positive control: whoever only asks whether there is something under the name has a document."""
    branch = f"feat/{SLUG}"
    return (
        SPEC in project.files_of(branch)
        and project.git("cat-file", "-s", f"{branch}:{SPEC}") != "0"
    )


@pytest.mark.demand("W3.b", "W3.f")
@pytest.mark.parametrize(
    "trap",
    [
        f"ln -sf proposal.md {SPEC}",
        f"head -c 4000001 /dev/zero | tr '\\0' x > {SPEC}",
        f"printf '\\377\\376' > {SPEC}",
    ],
    ids=["a link", "too long to be shown", "no text"],
)
def test_a_document_that_no_critic_can_be_shown_passes_no_gate(tmp_path: Path, trap: str) -> None:
    project = make_feature_project(tmp_path)
    project.play(writer({"run": trap}), *BUILDS, *APPROVES, ARCHIVES)
    project.start()
    feature = project.drive(stop_at_gates=True)
    assert careless(project)
    assert feature.workflow.stage is Stage.GATE_FAILED
    assert [gate.reasons.splitlines()[0] for gate in project.gates()] == ["spec.md is missing"]


@pytest.mark.demand("W8.a", "W8.b")
@pytest.mark.parametrize(
    "trap", [f"ln {SPEC} {FOLDER}/second.md", f"git init -q {FOLDER}/inner; touch {FOLDER}/inner/a"]
)
def test_what_a_writer_left_and_cannot_be_saved_blocks_with_its_reason(
    tmp_path: Path, trap: str
) -> None:
    """A run that ends with an error here would end so again and again, and never say what is wrong."""
    project = make_feature_project(tmp_path)
    project.play(writer({"run": trap}), *BUILDS, *APPROVES, ARCHIVES)
    done = project.call("run", "quick", DESCRIPTION)
    assert done.code == 1, done.stderr
    assert project.feature().workflow.stage is Stage.BLOCKED
    assert "File scope violation" in project.feature().workflow.reason
    assert "is kept" in done.stderr


TASKS = """\
# Tasks

- [ ] 2.1 Say bye
  - File: {files}, test_bye.py
  - Spec: FR-BYE-001
  - Do: bye says bye.
"""
FAILS_WITH_BYE = """\
import os
import unittest


class Alone(unittest.TestCase):
    def test_nobody_says_bye(self):
        self.assertFalse(os.path.exists('bye.py'))
"""


@pytest.mark.demand("D17.b", "W3.f")
@pytest.mark.parametrize(
    "files", ["bye.py", "bye.py, tsconfig.json"], ids=["plain", "another kind of project"]
)
def test_a_merge_is_tested_by_the_commands_of_the_project_that_it_began_as(
    tmp_path: Path, files: str
) -> None:
    """A person's commit does not go together with the work; the trap makes a Python project look like another one."""
    project = make_feature_project(tmp_path)
    tasks = document("tasks.md", TASKS.replace("{files}", files))
    work = [file(name, BYE if name == "bye.py" else "{}") for name in files.split(", ")]
    work.append(file("test_bye.py", TEST.format(module="bye")))
    project.play(writer(tasks), builds("WP01", *work), *APPROVES, ARCHIVES)
    project.start()
    assert project.drive().workflow.stage is Stage.GATE_PASSED
    (project.root / "test_alone.py").write_text(FAILS_WITH_BYE)
    project.git("add", "test_alone.py")
    project.git("commit", "-qm", "Nobody says bye")
    feature = project.drive(merge=True)
    assert feature.workflow.stage is Stage.BLOCKED, feature.merged  # nobody is there to fix it
    (sent,) = [event for event in project.happened() if isinstance(event, SentBack)]
    assert "the checks fail" in sent.reason
    assert "test_nobody_says_bye" in sent.findings
    assert "bye.py" not in project.files_of("main")


@pytest.mark.demand("D8.c", "D8.i")
def test_a_check_that_the_work_takes_away_is_still_asked_for(tmp_path: Path) -> None:
    """The tests fail; without their line in package.json nobody would run them."""
    scripts = {"scripts": {"test": "python3 -m unittest -q check_sources && false"}}
    files = {**PACKAGE_FILES, "package.json": json.dumps(scripts)}
    scope = ["src/login.ts", "package.json"]
    one = package(files=scope, profile="typescript", checks={}, deliverables={"code": scope[:1]})
    project = make_project(tmp_path, {"WP01": one}, files=files, run="max_review_cycles = 1")
    project.play(
        turn("implement", *writes("src/login.ts"), file("package.json", "{}"), SUCCESS), approves()
    )
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "test: " in report.reason


MOVES_THE_BRANCH = """\
#!/bin/sh
cd {root}
unset GIT_DIR GIT_WORK_TREE
blob=$(echo evil | git hash-object -w --stdin)
export GIT_INDEX_FILE={room}/index
git read-tree {branch}
git update-index --add --cacheinfo 100644,$blob,evil.py
tree=$(git write-tree)
commit=$(git -c user.name=a -c user.email=b commit-tree $tree -p {branch} -m evil)
git update-ref refs/heads/{branch} $commit
{then}
"""


def mover(project: FeatureProject, then: str = "") -> str:
    """A program that puts a file on the feature's branch: where no sandbox holds, an agent can."""
    program = project.scenario.with_name("move.sh")
    room, branch = program.parent, f"feat/{SLUG}"
    program.write_text(
        MOVES_THE_BRANCH.format(root=project.root, room=room, branch=branch, then=then)
    )
    program.chmod(0o755)
    return str(program)


@pytest.mark.demand("W3.f", "W8.f")
def test_what_came_to_the_branch_after_the_last_review_is_not_merged_unseen(tmp_path: Path) -> None:
    """An archivist without a sandbox moves the branch and ends its own run, so that nobody sees it stray."""
    project = make_feature_project(tmp_path, config='[run]\nsandbox = "none"\n')
    pid = tmp_path / "pid"
    program = mover(project, then=f"kill -9 $(cat {pid})")
    project.play(
        writer(), *BUILDS, *APPROVES, turn("archive", {"run": program}, {"verdict": "PASS"})
    )
    project.start()
    run = subprocess.Popen([sys.executable, "-m", "phasegate", "run", "--merge"], cwd=project.root)
    pid.write_text(str(run.pid))
    assert run.wait() == -9
    assert "evil.py" in project.files_of(f"feat/{SLUG}")
    project.play(writer(), *BUILDS, *APPROVES, ARCHIVES)
    feature = project.drive(merge=True)
    assert feature.workflow.stage is Stage.BLOCKED
    assert "after its last review: evil.py" in feature.workflow.reason
    assert "evil.py" not in project.files_of("main")
    assert project.call("resolve", "I have read it").code == 0
    assert project.drive(merge=True).workflow.stage is Stage.COMPLETED  # a person's word
    assert "evil.py" in project.files_of("main")


SHORT = """
[run]
fit_to_size = false
[workflows.short]
phases = ["01-requirements", "06-implementation", "11-local-testing"]
"""


@pytest.mark.demand("W3.b", "W3.f")
def test_a_reviewer_is_shown_what_was_tested_and_another_tree_passes_no_gate(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, config=SHORT)
    fails = turn("review", {"exit": 1}, workflow_phase="11-local-testing")
    project.play(writer(), *BUILDS, fails, *APPROVES, ARCHIVES)
    project.start("short")
    assert project.drive().workflow.stage is Stage.BLOCKED  # after the commands, before the review
    subprocess.run([mover(project)], check=True)
    project.play(writer(), *BUILDS, *APPROVES, ARCHIVES)
    assert project.call("resolve", "It can be asked again").code == 0
    feature = project.drive(stop_at_gates=True)
    assert "evil.py" not in project.prompts("review")[-1]
    assert feature.workflow.stage is Stage.GATE_FAILED
    assert "after its review: evil.py" in feature.findings


KEY = "ghp_" + "a1B2" * 9


@pytest.mark.demand("W8.a", "W8.b")
@pytest.mark.parametrize("phase", ["plan", "archive"])
def test_a_secret_in_a_document_reaches_no_branch_and_no_other_agent(
    tmp_path: Path, phase: str
) -> None:
    """Committed and taken out again, it would still be in the history. The control finds it in what was saved."""
    project = make_feature_project(tmp_path)
    path = SPEC if phase == "plan" else "CHANGELOG.md"
    steps: tuple[Step, ...] = (
        file(path, f"It is {KEY}\n"),
        {"commit": "One"},
        file(path, "It was\n"),
    )
    leaky = writer(*steps) if phase == "plan" else turn("archive", *steps, {"verdict": "PASS"})
    project.play(leaky, writer(), *BUILDS, *APPROVES, ARCHIVES)
    project.start()
    feature = project.drive(merge=True)
    assert feature.workflow.stage is Stage.BLOCKED
    assert f"GitHub token in {path}:1" in feature.workflow.reason
    (saved,) = project.saved(f"{SLUG}-{QUICK[0] if phase == 'plan' else phase}").values()
    assert KEY in project.git("log", "-p", saved)
    assert KEY not in project.git("log", "-p", "--branches")
    assert not any(KEY in project.prompt(job.id) for job in project.jobs())


@pytest.mark.demand("W4.b")
def test_without_a_sandbox_a_feature_in_work_beside_is_no_stray_and_an_idle_one_is(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path)
    project.play(writer(), *BUILDS, *APPROVES, ARCHIVES)
    first, second = project.start(), project.start(description="Another thing")
    with open_project_store(project.project) as store:
        watch = CheckoutSurroundingsMonitor(project.project, store, second, "")
        project.drive(first, stop_at_gates=True)
        assert project.feature(first).workflow.stage is Stage.GATE_PASSED
        assert watch.list_changes() == []
        watch = CheckoutSurroundingsMonitor(project.project, store, second, "")
        subprocess.run([mover(project)], check=True)
        assert watch.list_changes() == [f"refs/heads/feat/{first}"]
