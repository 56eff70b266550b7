"""From the second round on a reviewer is shown what changed, where that saves more than it costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from support.dispatch_project import FEATURE, DispatchProject, approves, make_project, turn, writes

FORM = "src/login.ts"
LONG = "".join(f"export const line{n} = {n};\n" for n in range(400))


def two_rounds(folder: Path, run: str = "") -> DispatchProject:
    """A long file, which the reviewer wants one more line of."""
    project = make_project(folder, run=run)
    again = turn(
        "implement",
        *writes(FORM, text=f"{LONG}export const more = 1;\n"),
        {"result": "success"},
        round=2,
    )
    wants = turn(
        "review", {"print": "1. [major] more is missing"}, {"verdict": "NEEDS_CHANGES"}, round=1
    )
    first = turn("implement", *writes(FORM, text=LONG), {"result": "success"}, round=1)
    project.play(first, wants, again, approves())
    return project


def prompts(project: DispatchProject) -> list[str]:
    return [project.prompt(job.id) for job in project.jobs() if job.phase == "review"]


def test_a_later_review_sees_the_changes_instead_of_the_whole(tmp_path: Path) -> None:
    project, said = two_rounds(tmp_path), list[str]()
    report = project.dispatch(said=said)
    assert (report.state, report.round) == (PackageState.DONE, 2), report.reason
    first, delta = prompts(project)
    assert "line17 = 17" in first
    assert "since-last-review.diff" not in first
    assert "+export const more" in delta
    assert "line17 = 17" not in delta, "the whole is there by reference only"
    assert "phasegate-change.diff" in delta
    assert "more is missing" in delta, "what was found so far"
    assert len(delta) < len(first)
    saved = project.command("show", "WP01", "--json").json["package"]["saved_tokens"]
    assert saved > 1000
    assert any(f"about {saved} tokens saved" in line for line in said)
    assert f"about {saved} tokens" in project.command("show", "WP01").stdout


def test_every_review_is_of_the_whole_where_the_user_says_so(tmp_path: Path) -> None:
    project = two_rounds(tmp_path, 'final_review = "full"')
    assert project.dispatch().state is PackageState.DONE
    assert ["line17 = 17" in text for text in prompts(project)] == [True, True]
    assert "more" in project.git("show", f"{FEATURE}:{FORM}")


def test_a_full_review_that_finds_something_stops_the_merge(tmp_path: Path) -> None:
    project = two_rounds(tmp_path, 'max_review_cycles = 2\nfinal_review = "full"')
    asked = "if [ -e phasegate-change.diff ]; then verdict=PASS; else verdict=NEEDS_CHANGES; fi"
    judges = turn("review", {"run": f'{asked}; echo; echo "<review>$verdict</review>"'})
    project.play(*json.loads(project.scenario.read_text())[:-1], judges)
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert FORM not in project.files_of(FEATURE)


@pytest.mark.parametrize("value", ["none", "1"])
def test_another_kind_of_final_review_is_refused(tmp_path: Path, value: str) -> None:
    project = make_project(tmp_path)
    done = project.command("config", "show", "--set", f"run.final_review={value}")
    assert done.code == 2
    assert "final_review" in done.stderr
