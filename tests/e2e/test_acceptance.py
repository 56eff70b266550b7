"""Acceptance tests are written before the code, proven red, sealed, and decide about the work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.workflow.phase_transitions import Stage
from phasegate.storage.reader import open_store_reader
from support.feature_project import (
    DESCRIPTION,
    SLUG,
    WORKFLOWS,
    FeatureProject,
    accepts,
    make_feature_project,
    plans,
    smooth,
)

WANTED = '[evidence]\nacceptance = ["quick"]\n'
TEST = "accept_bye.py::Bye::test_fr_bye_001_names_the_user"


def recorded(project: FeatureProject, kind: str) -> list[Any]:
    reader = open_store_reader(project.project.location)
    assert reader is not None
    with reader:
        return [json.loads(one.payload) for one in reader.events_of_kinds(SLUG, kind)]


@pytest.mark.demand("E2.a", "E2.b", "E2.d")
def test_a_writer_without_acceptance_tests_is_asked_again_and_the_sealed_ones_decide(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, config=WANTED)
    phases = WORKFLOWS["quick"]
    first = plans("01-requirements", phases, round=1)
    second = plans("01-requirements", phases)
    second["steps"].insert(0, accepts())
    project.play(first, second, *smooth(phases))
    done = project.call("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    assert project.feature().workflow.stage is Stage.COMPLETED

    (gate, *_) = [one for one in project.happened() if type(one).__name__ == "GateChecked"]
    assert "FR-BYE-001 has no acceptance test" in str(gate)
    (seal,) = recorded(project, "acceptance.sealed")
    assert seal["tests"] == {"FR-BYE-001": [TEST]}
    rows = [row for checked in recorded(project, "acceptance.checked") for row in checked]
    last = rows[-1]
    assert (last["requirement"], last["tests"], last["outcome"]) == ("FR-BYE-001", [TEST], "passed")
    assert last["revision"] == seal["revisions"]["FR-BYE-001"]
    jobs = [job for job in project.jobs() if job.phase == "implement"]
    prompt = (project.project.jobs_folder / jobs[0].id / "prompt.xml").read_text(encoding="utf-8")
    assert TEST in prompt
    # The critic judges them before they are sealed
    critic = [job for job in project.jobs() if job.phase == "challenge"][-1]
    prompt = (project.project.jobs_folder / critic.id / "prompt.xml").read_text(encoding="utf-8")
    assert (
        "documents under challenge: proposal.md, spec.md, tasks.md, acceptance/accept_bye.py"
        in prompt
    )
    assert "<artifact name='acceptance/accept_bye.py'>" in prompt
    # A document that exists needs no skeleton in the second round
    writer = [job for job in project.jobs() if job.phase == "plan"][-1]
    prompt = (project.project.jobs_folder / writer.id / "prompt.xml").read_text(encoding="utf-8")
    assert "Skeleton of `acceptance/`" in prompt
    assert "Skeleton of `spec.md`" not in prompt


@pytest.mark.demand("E2.b")
def test_linters_of_the_project_do_not_judge_sealed_tests(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path, config=WANTED)
    settings = project.root / "phasegate.toml"
    text = settings.read_text(encoding="utf-8")
    lint = '! ls kitty-specs/*/acceptance/*.py && test -z "$(git status --porcelain)"'
    changed = re.sub("^lint = .*", lambda _: f"lint = '{lint}'", text, flags=re.MULTILINE)
    settings.write_text(changed, encoding="utf-8")
    project.git("commit", "-q", "-a", "-m", "Lint every file")
    phases = WORKFLOWS["quick"]
    planner = plans("01-requirements", phases)
    planner["steps"].insert(0, accepts())
    project.play(planner, *smooth(phases))
    done = project.call("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    (seal,) = recorded(project, "acceptance.sealed")
    # Control: the branch has the file that the linter would have found
    files = project.git("ls-tree", "-r", "--name-only", seal["commit"])
    assert f"kitty-specs/{SLUG}/acceptance/accept_bye.py" in str(files)


@pytest.mark.demand("E2.a")
def test_a_writer_that_never_writes_them_stops_for_the_user(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path, config=WANTED)
    project.play(*smooth(WORKFLOWS["quick"]))
    done = project.call("run", "quick", DESCRIPTION)
    assert done.code == 1
    feature = project.feature()
    assert feature.workflow.stage is Stage.BLOCKED
    assert "FR-BYE-001 has no acceptance test" in feature.findings


@pytest.mark.demand("E2.e")
def test_a_project_whose_runner_cannot_run_single_files_is_said_to_have_none(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, config=WANTED)
    settings = project.root / "phasegate.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace('"python3 -m', '"exec python3 -m'), encoding="utf-8")
    project.git("commit", "-q", "-a", "-m", "Run the tests by another command")
    project.play(*smooth(WORKFLOWS["quick"]))
    project.call("run", "quick", DESCRIPTION, "--step")
    assert project.feature().workflow.stage is Stage.GATE_PASSED
    notices = [one["text"] for one in recorded(project, "notice.given")]
    assert any(
        text.startswith("no acceptance tests are sealed: the test command") for text in notices
    )
