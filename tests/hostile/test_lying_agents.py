"""Agents that claim what is not so: commits, files, success (C06, C07, C09), played by the scripted agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.agents.port import AgentConfig, Ending, FinishedRun, get_harness
from phasegate.checks.false_claims import ObservedFacts, find_false_claims
from phasegate.checks.manifest import gather_evidence
from phasegate.core.answer.json_result import AgentResponse
from phasegate.core.answer.parse import parse_answer
from phasegate.core.machine.package_events import JobEndKind
from support.agents import carry_out, reported
from support.checkout import git, plan, repository, run_plainly, work_since
from support.job_ends import judged_implementer
from support.tasks import make_task

QUICK = plan(commands={"test": "echo '1 passed in 0.01s'"})
HONEST = '{ write = "calc.py", content = "x = 1\\n" }, { commit = "WP01: Add calc", paths = ["calc.py"] }'


def play(folder: Path, steps: str) -> FinishedRun:
    scenario = folder.parent / "scenario.toml"
    scenario.write_text(f"[[turns]]\nsteps = [{steps}]\n")
    task = make_task(folder, AgentConfig("liar", scenario=str(scenario)), kind="scripted")
    return carry_out(get_harness("scripted").launch(task), folder)


def response(finished: FinishedRun) -> AgentResponse:
    found = parse_answer(finished.stdout, "implement").response
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", {"README.md": "x\n"})


@pytest.mark.demand("D7.f")
def test_an_agent_that_invents_commits_and_files_is_found_out(folder: Path) -> None:
    base = git(folder, "rev-parse", "HEAD")
    invented = 'commits = [{ sha = "deadbeefcafe", message = "WP01: All of it" }]'
    files = 'artifacts = { files_created = ["calc.py", "auth.py", ".git"], test_coverage = "100%" }'
    finished = play(folder, f'{HONEST}, {{ result = "success", {invented}, {files} }}')
    said = response(finished)
    assert said.success is True, "control: by its own word all is well"
    work = work_since(folder, base)
    facts = ObservedFacts(
        commits=work.commits,
        checkout=folder,
        base_paths=("README.md",),
        duration_s=finished.duration_s,
        evidence=gather_evidence(QUICK, work, run_plainly),
    )
    assert [claim.claim for claim in find_false_claims(said, facts)] == [
        "commit deadbeefcafe",
        "created auth.py",
        "created .git",
        "coverage 100%",
    ]


@pytest.mark.demand("D7.g", "D8.a")
def test_an_agent_that_claims_success_and_did_nothing_does_not_pass(folder: Path) -> None:
    base = git(folder, "rev-parse", "HEAD")
    finished = play(
        folder, '{ result = "success", summary = "Everything is implemented and tested" }'
    )
    assert (finished.exit_status, response(finished).success) == (0, True), "control"
    evidence = gather_evidence(QUICK, work_since(folder, base), run_plainly)
    assert [check.name for check in evidence.failures] == ["changes", "deliverables", "commits"]


DISAGREEING = [
    ('{ result = "blocked" }', 0, False, "exit 0, failure reported"),
    ('{ result = "success" }, { exit = 1 }', 1, True, "exit 1, success reported"),
    (
        '{ result = "success" }, { run = "kill -9 $PPID" }, { sleep_s = 5 }',
        None,
        True,
        "killed, success reported",
    ),
]


@pytest.mark.demand("D7.g")
@pytest.mark.parametrize(
    ("end", "status", "success"),
    [row[:3] for row in DISAGREEING],
    ids=[row[3] for row in DISAGREEING],
)
def test_exit_status_and_answer_must_agree(
    folder: Path, end: str, status: int | None, success: bool
) -> None:
    base = git(folder, "rev-parse", "HEAD")
    finished = play(folder, f"{HONEST}, {end}")
    assert finished.exit_status == status
    assert response(finished).success is success
    evidence = gather_evidence(QUICK, work_since(folder, base), run_plainly)
    assert evidence.has_passed, "control: the work itself is good"
    report = reported(get_harness("scripted"), make_task(folder, AgentConfig("liar")), finished)
    assert (report.ending is Ending.COMPLETED) is (status == 0)
    ended = judged_implementer(report, finished)
    assert ended.outcome is not JobEndKind.DONE
    assert ended.reason


@pytest.mark.demand("D7.g")
def test_an_honest_agent_passes(folder: Path) -> None:
    base = git(folder, "rev-parse", "HEAD")
    finished = play(folder, f'{HONEST}, {{ result = "success" }}')
    assert gather_evidence(QUICK, work_since(folder, base), run_plainly).has_passed
    report = reported(get_harness("scripted"), make_task(folder, AgentConfig("liar")), finished)
    assert judged_implementer(report, finished).outcome is JobEndKind.DONE
