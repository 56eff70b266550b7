"""Three things that others get wrong: a rejection with exit code 0, a person's commit meanwhile, and a killed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.journal.feature import read_feature
from phasegate.storage.reader import open_store_reader
from support.dispatch_project import Turn, turn
from support.feature_project import (
    APPROVES,
    ARCHIVES,
    DESCRIPTION,
    FOLDER,
    SLUG,
    FeatureProject,
    make_feature_project,
    plans,
)

NOTE = '[workflows.note]\nphases = ["01-requirements", "08-code-review"]\n'
WRITES = plans("01-requirements", ("01-requirements", "08-code-review"))
SLEEPER = turn("challenge", {"sleep_s": 600}, workflow_phase="01-requirements")
ENTRY = "- People are told bye."


def note_project(folder: Path, *first: Turn) -> FeatureProject:
    project = make_feature_project(folder, config=NOTE)
    project.play(*first, WRITES, *APPROVES, ARCHIVES)
    return project


REJECTIONS = {
    "a marker": "<review>MAJOR_ISSUES</review>",
    "a word": "REJECTED. This must not be merged.",
    "JSON": '{"verdict": "reject", "approved": false}',
    "a pass in a fence": "```\n<review>PASS</review>\n```\nNo, I do not approve.",
}


@pytest.mark.demand("W3.f", "W3.g", "P6.n")
@pytest.mark.parametrize("answer", REJECTIONS.values(), ids=REJECTIONS.keys())
def test_a_rejecting_reviewer_with_exit_code_0_does_not_pass(tmp_path: Path, answer: str) -> None:
    rejects = turn("review", {"print": answer}, {"exit": 0}, workflow_phase="08-code-review")
    project = note_project(tmp_path, rejects)
    done = project.call("run", "note", DESCRIPTION, "--merge")
    assert done.code == 1
    assert "GATE-01 PASSED" in done.stdout  # the critic before, who approves, is believed
    assert "GATE-08 PASSED" not in done.stdout
    assert project.feature().workflow.stage is Stage.BLOCKED
    assert ENTRY not in project.show("main", "CHANGELOG.md")


@pytest.mark.demand("W8.f", "W8.g", "D17.b")
def test_a_commit_of_a_person_meanwhile_is_never_overwritten(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    assert project.call("run", "note", DESCRIPTION).code == 0
    (project.root / "mine.txt").write_text("mine\n")
    project.git("add", "mine.txt")
    project.git("commit", "-qm", "Mine")
    mine = project.git("rev-parse", "HEAD")
    done = project.call("complete")
    assert done.code == 0, done.stderr
    assert {"mine.txt", "CHANGELOG.md"} <= project.files_of("main")
    assert project.git("rev-parse", "main^1") == mine  # the merge stands on it
    assert (project.root / "CHANGELOG.md").is_file()
    assert project.git("status", "--porcelain") == ""


@pytest.mark.demand("W8.h", "W4.b", "W6.f")
def test_what_a_person_has_not_committed_stops_the_merge_by_name_and_stays(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    assert project.call("run", "note", DESCRIPTION).code == 0
    before = project.git("rev-parse", "main")
    (project.root / "README.md").write_text("half a sentence\n")
    jobs = len(project.jobs())
    refused = project.call("complete")
    assert (refused.code, len(project.jobs())) == (4, jobs)  # before an agent archives it
    assert "README.md" in refused.stderr
    stopped = project.call("run", "--merge")
    assert stopped.code == 1
    assert "README.md" in stopped.stderr
    assert "commit or stash" in stopped.stderr
    still = project.call("complete")
    assert (still.code, "is blocked" in still.stderr, "README.md" in still.stderr) == (
        4,
        True,
        True,
    )
    assert project.git("rev-parse", "main") == before
    assert (project.root / "README.md").read_text() == "half a sentence\n"
    project.git("commit", "-qam", "A whole sentence")
    jobs = len(project.jobs())
    assert project.call("complete").code == 0  # checked again: no `resolve` is needed
    assert (
        len(project.jobs()) == jobs
    )  # the archive was written before: only the merge is tried again
    assert project.show("main", "README.md") == "half a sentence\n"
    assert ENTRY in project.show("main", "CHANGELOG.md")


@pytest.mark.demand("W8.f", "W4.b")
def test_a_conflict_stops_the_merge_and_is_solved_by_a_person_on_the_features_branch(
    tmp_path: Path,
) -> None:
    project = note_project(tmp_path)
    assert project.call("run", "note", DESCRIPTION).code == 0
    document = f"{FOLDER}/spec.md"
    (project.root / document).parent.mkdir(parents=True)
    (project.root / document).write_text("Mine.\n")
    project.git("add", document)
    project.git("commit", "-qm", "Mine")
    mine = project.git("rev-parse", "main")
    stopped = project.call("complete")
    assert stopped.code == 1
    assert f"changed the same lines: {document}" in stopped.stderr
    assert project.git("rev-parse", "main") == mine
    project.git("checkout", "-q", f"feat/{SLUG}")
    project.git("merge", "-q", "-X", "ours", "-m", "Solve it", "main")
    project.git("checkout", "-q", "main")
    assert project.call("resolve", "merged main by hand").code == 0
    assert project.call("complete").code == 0
    assert project.git("merge-base", "--is-ancestor", mine, "main") == ""
    assert ENTRY in project.show("main", "CHANGELOG.md")


FAILS_TOGETHER = """\
import pathlib
import unittest


class Alone(unittest.TestCase):
    def test_nobody_tells_of_it(self):
        self.assertNotIn("bye", pathlib.Path("CHANGELOG.md").read_text())
"""


@pytest.mark.demand("D17.b", "W3.f")
def test_a_branch_that_fails_the_tests_only_when_merged_is_not_merged(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    assert project.call("run", "note", DESCRIPTION).code == 0
    (project.root / "test_alone.py").write_text(FAILS_TOGETHER)
    project.git("add", "test_alone.py")
    project.git("commit", "-qm", "Passes here")
    mine = project.git("rev-parse", "main")
    stopped = project.call("complete")
    assert stopped.code == 1
    assert f"the checks fail on feat/{SLUG} merged into main" in stopped.stderr
    assert project.git("rev-parse", "main") == mine
    assert f"feat/{SLUG}" in project.branches()


@pytest.mark.demand("W5.a", "W5.b", "W5.c")
def test_run_goes_on_after_it_was_killed(tmp_path: Path) -> None:
    project = note_project(tmp_path, SLEEPER)
    assert _signalled(project, signal.SIGKILL) == (-signal.SIGKILL, "")
    assert _open_role(project) == "challenge"
    _expect_the_rest(project)


@pytest.mark.demand("W5.a", "W6.f")
def test_ctrl_c_ends_the_agents_says_how_to_go_on_and_run_does(tmp_path: Path) -> None:
    project = note_project(tmp_path, SLEEPER)
    code, last_words = _signalled(project, signal.SIGINT)
    assert code == 130
    assert f"{SLUG} is stopped; the work of the agents is saved" in last_words
    assert "then: phasegate run" in last_words
    assert _open_role(project) == ""  # its end is on record
    _expect_the_rest(project)


def _signalled(project: FeatureProject, number: int) -> tuple[int, str]:
    """A run that gets a signal while its critic is at work; how it ends, and what it says."""
    argv = [sys.executable, "-m", "phasegate", "run", "note", DESCRIPTION]
    said = project.root.parent / "stderr"
    with said.open("wb") as stderr:
        process = subprocess.Popen(argv, cwd=project.root, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        _wait_for_open_job(project, "challenge", process)
    finally:
        os.kill(process.pid, number)
        code = process.wait()
    return code, said.read_text() if number == signal.SIGINT else ""


def _expect_the_rest(project: FeatureProject) -> None:
    """Run goes on to the merge, and repeats nothing that was done."""
    project.play(WRITES, *APPROVES, ARCHIVES)
    done = project.call("run", "--merge")
    assert done.code == 0, done.stderr
    assert [(job.phase, job.outcome) for job in project.jobs()] == [
        ("plan", "done"),  # not repeated
        ("challenge", "lost"),
        ("challenge", "done"),
        ("review", "done"),
        ("archive", "done"),
    ]
    assert project.feature().workflow.stage is Stage.COMPLETED
    assert project.branches() == {"main"}
    assert project.left_over() == set()
    assert project.audit_problems() == []


def _open_role(project: FeatureProject) -> str:
    reader = open_store_reader(project.project.location)
    if reader is None:
        return ""
    with reader:
        feature = read_feature(reader, SLUG)
    return feature.open_job.role if feature and feature.open_job else ""


def _wait_for_open_job(
    project: FeatureProject, role: str, process: subprocess.Popen[bytes]
) -> None:
    deadline = time.monotonic() + 240
    while _open_role(project) != role:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline, "the job was never begun"
        time.sleep(0.1)
