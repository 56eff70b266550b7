"""Rounds that cannot help are not paid for (R6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Stage
from support.dispatch_project import (
    FILES,
    DispatchProject,
    approves,
    implements,
    make_project,
    package,
    turn,
)
from support.feature_project import (
    APPROVES,
    DESCRIPTION,
    PASS,
    FeatureProject,
    document,
    make_feature_project,
    says,
    smooth,
)

TODO = {"write": "src/login.ts", "content": "// TODO in round {round}\n"}


def rounds(project: DispatchProject) -> list[tuple[str, int]]:
    return [(job.phase, job.round) for job in project.jobs()]


@pytest.mark.demand("R6.a")
def test_a_round_that_changes_nothing_is_the_last_one_until_a_person_answers(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    project.play(turn("implement", {"result": "success"}), approves())
    report = project.dispatch()
    assert (report.state, report.reason) == (PackageState.BLOCKED, "the round changed nothing")
    assert "--answer" in report.remediation
    assert rounds(project) == [("implement", 1)]
    project.play(implements("src/login.ts"), approves())
    assert project.dispatch().state is PackageState.DONE  # nothing is in the way of the next one


@pytest.mark.demand("R6.a")
def test_the_same_red_test_twice_stops_although_the_work_changed(tmp_path: Path) -> None:
    project = make_project(
        tmp_path,
        {"WP01": package(test="sleep 0.0$RANDOM; python3 -m unittest check_same")},
        files=SAME,
    )
    project.play(turn("implement", TODO, {"result": "success"}))
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert report.reason.startswith(
        "the round failed in exactly the same way as the one before: test: 1 of 1 tests failed"
    )
    assert rounds(project) == [("implement", 1), ("implement", 2)]


SAME = {
    **FILES,
    "check_same.py": (
        "import pathlib, unittest\n\n\nclass Same(unittest.TestCase):\n    def test_whole(self):\n"
        "        path = pathlib.Path('src/login.ts')\n"
        "        self.assertFalse(path.exists() and 'TODO' in path.read_text())\n"
    ),
}


@pytest.mark.demand("R6.b")
@pytest.mark.parametrize(
    "words", ["curl: (6) Could not resolve host: example", "No space left on device"]
)
def test_a_setup_that_the_machine_fails_costs_no_round(tmp_path: Path, words: str) -> None:
    """The base could be set up; the work changed what the setup reads, and then the network was gone."""
    settings = '\n[checks.python]\nsetup = "sh setup.sh"\n'
    files = {**FILES, "pyproject.toml": "", "setup.sh": "exit 0\n"}
    project = make_project(
        tmp_path, {"WP01": package(files=["setup.sh"])}, files=files, run=settings
    )
    broken = {"write": "setup.sh", "content": f"echo '{words}' >&2; exit 1\n"}
    project.play(turn("implement", broken, {"result": "success"}), approves())
    stopped = project.command("dispatch", "WP01")
    assert stopped.code == 3, stopped
    assert "nothing was tested: sh setup.sh" in stopped.stderr
    assert rounds(project) == [("implement", 1)]
    assert project.rows()["WP01"].round == 1


PHASES = ("01-requirements", "06-implementation", "11-local-testing")


def features_rounds(project: FeatureProject, phase: str) -> list[tuple[str, int]]:
    return [(job.phase, job.round) for job in project.jobs() if job.workflow_phase == phase]


@pytest.mark.demand("R6.a")
def test_a_writer_that_answers_findings_with_nothing_stops_before_another_critic_is_paid(
    tmp_path: Path,
) -> None:
    project = make_feature_project(
        tmp_path, config='[workflows.note]\nphases = ["01-requirements"]\n'
    )
    names = ("proposal.md", "spec.md")
    same = turn("plan", *(document(name, "# Always the same\n") for name in names), PASS)
    project.play(same, says("challenge", "NEEDS_REVISION", "It is too thin."), *APPROVES)
    stopped = project.call("run", "note", DESCRIPTION)
    assert stopped.code == 1
    assert "the round changed nothing; findings to address: It is too thin." in stopped.stderr
    assert features_rounds(project, "01-requirements") == [
        ("plan", 1),
        ("challenge", 1),
        ("plan", 2),
    ]
    assert project.call("resolve", "it is thick enough").code == 0
    project.play(same, *APPROVES)
    assert project.call("run").code == 0  # a person has spoken: what is there may be right as it is
    assert project.feature().workflow.stage is Stage.GATE_PASSED


@pytest.mark.demand("R6.a", "R6.b")
@pytest.mark.parametrize(
    ("command", "reason", "mended"),
    [
        (
            "sh whole.sh never",
            "the gate failed in exactly the same way as in the previous round",
            ["WP03"],
        ),
        (
            "no-such-program-4711",
            "no agent can fix this: no-such-program-4711: exit status 127",
            [],
        ),
    ],
)
def test_a_gate_of_commands_stops_at_the_same_failure_and_where_a_program_is_not_there(
    tmp_path: Path, command: str, reason: str, mended: list[str]
) -> None:
    flow = f'[workflows.build]\nphases = {[*PHASES]}\n[phases."11-local-testing"]\ncommands = ["{command}"]\n'
    project = make_feature_project(tmp_path, config=flow)
    project.play(*smooth(PHASES))
    stopped = project.call("run", "build", DESCRIPTION)
    assert (stopped.code, reason in stopped.stderr) == (1, True), stopped.stderr
    assert project.feature().workflow.stage is Stage.BLOCKED
    assert sorted(name for name in project.packages() if name > "WP02") == mended
    shown = project.command("status").stdout
    assert reason in shown
    assert "resolve" in shown
