"""What implementers say of each task counts: against a success, in the eyes of the reviewer, and in the reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dispatch_project import (
    DispatchProject,
    Turn,
    approves,
    make_project,
    package,
    turn,
    writes,
)
from support.feature_run import DESCRIPTION, FEATURE, TYPE, make_feature_run
from support.feature_run import SLUG as FEATURE_SLUG

RESULT = '{"job_id": "{job_id}", "wp_id": "WP01", "success": true, "status": "completed", "summary": "Built it"}'


def project(folder: Path, *turns: Turn) -> DispatchProject:
    made = make_project(folder, {"WP01": package(tasks=["1.1", "1.2"])})
    made.play(*turns)
    return made


def says(*lines: str) -> Turn:
    """An implementer that does the work and then says this; lines for its second try begin with `again:`."""
    first, second = (
        "\n".join(
            line.removeprefix("again:") for line in lines if line.startswith("again:") is is_again
        )
        for is_again in (False, True)
    )
    script = f"if grep -q 'could not be used' \"$AGILEPLUS_PROMPT\"; then echo '{second}'; else echo '{first}'; fi"
    steps = [*writes("src/login.ts"), {"run": script}, {"print": RESULT}]
    return turn("implement", *steps)


def status(task: str, word: str = "COMPLETED") -> str:
    return f'<task_status id="{task}">{word}</task_status>'


@pytest.mark.demand("P6.o", "P6.q")
def test_a_failed_task_beside_a_success_is_never_done_and_the_person_sees_which(
    tmp_path: Path,
) -> None:
    said = [status("1.1"), status("1.2", "FAILED")]
    made = project(tmp_path, says(*said, *(f"again:{line}" for line in said)), approves())
    done = made.command("dispatch", "WP01")
    assert done.code == 1
    assert made.rows()["WP01"].state == "BLOCKED"
    assert "the status of these tasks is FAILED: 1.2" in made.rows()["WP01"].reason
    assert [job.phase for job in made.jobs()] == ["implement", "implement"]
    assert "the status of these tasks is FAILED: 1.2" in made.prompt(made.jobs()[1].id)
    shown = made.command("status", "WP01").stdout
    assert "1.1 COMPLETED, 1.2 FAILED" in shown
    assert "the status of these tasks is FAILED: 1.2" in shown
    overview = made.command("status")
    assert "tasks: 1 of 2 completed; FAILED: WP01 1.2" in overview.stdout
    data = made.command("status", "--json").json
    assert data["features"][0]["packages"][0]["tasks"] == {"1.1": "COMPLETED", "1.2": "FAILED"}


@pytest.mark.demand("P6.o")
def test_the_reviewer_learns_of_a_task_that_failed_before_the_agent_was_asked_again(
    tmp_path: Path,
) -> None:
    first = [status("1.1"), status("1.2", "FAILED")]
    made = project(
        tmp_path, says(*first, *(f"again:{status(task)}" for task in ("1.1", "1.2"))), approves()
    )
    assert made.command("dispatch", "WP01").code == 0
    review = made.prompt(made.jobs()[-1].id)
    assert "1.1 COMPLETED, 1.2 COMPLETED" in review
    assert "FAILED in an answer of this round that called the package a success: task 1.2" in review


@pytest.mark.demand("P6.p")
def test_a_task_without_a_status_is_asked_for_once_and_the_reviewer_sees_that_there_is_none(
    tmp_path: Path,
) -> None:
    made = project(tmp_path, says(status("1.1"), f"again:{status('1.1')}"), approves())
    assert made.command("dispatch", "WP01").code == 0
    assert [job.phase for job in made.jobs()] == ["implement", "implement", "review"]
    assert "task_status lines are missing for: 1.2" in made.prompt(made.jobs()[1].id)
    assert "1.1 COMPLETED, 1.2 without a status" in made.prompt(made.jobs()[2].id)
    assert "1.1 COMPLETED, 1.2 no status" in made.command("status", "WP01").stdout


@pytest.mark.demand("P6.p")
def test_an_answer_with_every_status_is_not_asked_for_again(tmp_path: Path) -> None:
    made = project(tmp_path, says(status("1.1"), status("1.2")), approves())
    assert made.command("dispatch", "WP01").code == 0
    assert [job.phase for job in made.jobs()] == ["implement", "review"]


@pytest.mark.demand("P6.q", "D16.c")
def test_the_implementation_report_holds_statuses_and_summaries_behind_front_matter(
    tmp_path: Path,
) -> None:
    run = make_feature_run(tmp_path)
    assert run.command("run", TYPE, DESCRIPTION).code == 0
    written = run.git("show", f"{FEATURE}:kitty-specs/{FEATURE_SLUG}/IMPLEMENTATION.md")
    assert written.startswith("---\naudience: [agents, developers]\n---\n# Implementation of ")
    assert "| WP01 | DONE | 1 | 1 of 1 |" in written
    assert "| 2.1 | COMPLETED |" in written
    assert "Summary of the agent: Done as scripted" in written
    review = run.git("show", f"{FEATURE}:kitty-specs/{FEATURE_SLUG}/REVIEW-08.md")
    assert review.startswith("---\naudience: [agents, developers]\n---\n# GATE-08")
