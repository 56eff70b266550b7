"""`phasegate show`: everything that is kept of a package, a phase or a job, in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dispatch_project import approves, implements, make_project
from support.feature_project import SLUG, FeatureProject, make_feature_project


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> FeatureProject:
    """A feature that was carried to its last gate."""
    project = make_feature_project(tmp_path_factory.mktemp("show"))
    project.start()
    project.drive()
    return project


@pytest.mark.demand("D14.a", "W4.a")
def test_a_package_is_shown_with_its_jobs_and_each_of_its_parts(carried: FeatureProject) -> None:
    whole = carried.command("show", "WP01")
    assert whole.code == 0
    builder, reviewer = (job for job in carried.jobs() if job.wp == "WP01")
    for words in ("WP01  DONE", f"job {builder.id[:8]}", f"job {reviewer.id[:8]}", "--diff"):
        assert words in whole.stdout
    diff = carried.command("show", "WP01", "--diff").stdout
    assert "+++ b/bye.py" in diff
    assert "docs.md" not in diff
    assert carried.command("show", "WP01", "--prompt").stdout.rstrip("\n") == carried.prompt(reviewer.id).rstrip("\n")
    assert "PASS" in carried.command("show", "WP01", "--answer").stdout
    assert "test" in carried.command("show", "WP01", "--evidence").stdout
    log = carried.project.jobs / reviewer.id / "stdout.log"
    assert carried.command("show", "WP01", "--log").stdout.strip() == log.read_text(encoding="utf-8").strip()


@pytest.mark.demand("D14.a")
def test_a_job_is_shown_by_the_beginning_of_its_id_and_not_by_its_package(carried: FeatureProject) -> None:
    builder = next(job for job in carried.jobs() if (job.wp, job.phase) == ("WP01", "implement"))
    told = carried.command("show", builder.id[:8], "--json").json
    assert (told["job"]["job"], told["package"], told["phase"]) == (builder.id, None, None)
    part = carried.command("show", builder.id[:8], "--prompt", "--json").json
    assert (part["job"], part["text"]) == (builder.id, carried.prompt(builder.id))
    assert "+++ b/bye.py" in carried.command("show", builder.id, "--diff").stdout


@pytest.mark.demand("W4.a")
def test_a_phase_is_shown_by_key_number_or_name(carried: FeatureProject) -> None:
    keys = carried.feature().workflow.phases
    key = keys[0]
    number, _, name = key.partition("-")
    shown = [carried.command("show", wanted).stdout for wanted in (key, number, name)]
    assert shown[0] == shown[1] == shown[2]
    assert "round 1: passed" in shown[0]
    assert f"+++ b/kitty-specs/{SLUG}/" in carried.command("show", key, "--diff").stdout
    assert f"GATE-{number}, round 1: passed" in carried.command("show", key, "--evidence").stdout
    assert "<" in carried.command("show", key, "--prompt").stdout


@pytest.mark.demand("W4.a")
def test_what_is_not_there_is_refused_with_the_way_to_what_is(carried: FeatureProject) -> None:
    for wrong, words in (("WP77", "there is no WP77"), ("zzzz", "no trail begins with job 'zzzz'")):
        done = carried.command("show", wrong)
        assert (done.code, done.stdout) == (2, "")
        assert words in done.stderr
        assert "hint: " in done.stderr
    beside = carried.command("show", "WP01", "--feature", "002-nothing")
    assert beside.code == 2
    assert carried.command("show").code == 2


def test_a_package_that_nobody_began_has_no_prompt_yet(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    assert project.command("show", "WP01").code == 0
    early = project.command("show", "WP01", "--log")
    assert (early.code, early.stdout) == (2, "")
    assert "no agent has worked on WP01 yet" in early.stderr
    project.play(implements("src/login.ts"), approves())
    assert project.command("dispatch", "WP01").code == 0
    assert "+export const done" in project.command("show", "WP01", "--diff").stdout
