"""`phasegate check`: the base is known before an agent is paid, and what fails there is not the agent's (R2)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.dispatch_project import DispatchProject, approves, make_project, package, turn

RED = """import unittest


class T(unittest.TestCase):
    def test_red(self):
        self.fail('old')

    def test_green(self):
        pass
"""
FILES = {"pyproject.toml": "", "tests/test_all.py": RED, "src/old.txt": "TODO one\n"}
CHECKS = """
[checks.python]
setup = "mkdir .venv"
test = "python3 -m unittest discover -s tests"
lint = "grep -rn TODO src && exit 1 || exit 0"
typecheck = "no-such-checker src"
"""


def red_project(tmp_path: Path, settings: str = CHECKS) -> DispatchProject:
    project = make_project(
        tmp_path, {"WP01": package(files=["src/new.txt"], checks={})}, files=FILES, run=settings
    )
    text = "nothing to do\n"
    project.play(
        turn(
            "implement",
            {"write": "src/new.txt", "content": text},
            {"commit": "{wp_id}: Add"},
            {"result": "success"},
        ),
        approves(),
    )
    return project


@pytest.mark.demand("R2.a")
def test_one_run_shows_a_red_test_a_finding_and_a_missing_program(tmp_path: Path) -> None:
    project = red_project(tmp_path)
    done = project.command("check")
    assert done.code == 1
    assert "test_red" in done.stdout
    assert "src/old.txt:1:TODO one" in done.stdout
    assert "its program is missing (no-such-checker)" in done.stdout
    assert 'already_failing = "tolerate"' in done.stdout
    data = project.command("check", "--json").json
    outcomes = {row["name"]: row["outcome"] for row in data["checks"]}
    assert outcomes == {
        "setup": "passed",
        "build": "not asked for",
        "typecheck": "failed",
        "lint": "failed",
        "test": "failed",
    }
    (test,) = [row for row in data["checks"] if row["name"] == "test"]
    assert (test["tests"], test["why"], test["duration_s"] > 0) == (2, "set by hand", True)
    assert "FAILED" in Path(test["log"]).read_text()


@pytest.mark.demand("R2.b")
def test_a_package_that_adds_no_new_failure_is_done_and_the_old_ones_are_listed(
    tmp_path: Path,
) -> None:
    project = red_project(tmp_path)
    report = project.dispatch()
    assert report.accepted, report.reason
    evidence = next((project.root / ".phasegate/evidence").rglob("WP01-1.md")).read_text()
    assert "already failing before the work began: test_red" in evidence
    assert "already failing before the work began: src/old.txt:#:TODO one" in evidence


@pytest.mark.demand("R2.b")
@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        ("src/new.txt", "TODO two\n", "lint"),
        ("tests/test_new.py", RED.replace("test_red", "test_another"), "test"),
    ],
)
def test_a_new_failure_beside_the_old_ones_rejects(
    tmp_path: Path, path: str, content: str, told: str
) -> None:
    project = make_project(
        tmp_path,
        {"WP01": package(files=[path], checks={})},
        files=FILES,
        run=f"max_review_cycles = 1\n{CHECKS}",
    )
    project.play(
        turn(
            "implement",
            {"write": path, "content": content},
            {"commit": "{wp_id}: Add"},
            {"result": "success"},
        )
    )
    report = project.dispatch()
    assert not report.accepted
    assert report.reason.startswith(f"all 1 review cycles are used up; the last finding: {told}:")


@pytest.mark.demand("R2.c")
def test_with_stop_no_agent_begins_on_a_red_base(tmp_path: Path) -> None:
    project = red_project(tmp_path, f'\n[checks]\nalready_failing = "stop"\n{CHECKS}')
    refused = project.command("dispatch", "WP01")
    assert refused.code == 3
    assert "typecheck, lint, test" in refused.stderr
    assert project.jobs() == []
    assert "already_failing" in project.command("config", "show").stdout


@pytest.mark.demand("R2.c")
def test_a_setup_that_fails_shows_its_last_words_before_an_agent_is_paid(tmp_path: Path) -> None:
    settings = '\n[checks.python]\nsetup = "echo one; echo no compiler here >&2; exit 4"\n'
    project = red_project(tmp_path, settings)
    refused = project.command("dispatch", "WP01")
    assert refused.code == 3
    assert "no compiler here" in refused.stderr
    assert "setup.log" in refused.stderr
    assert project.jobs() == []


@pytest.mark.demand("R2.c")
def test_a_feature_pays_no_agent_where_its_base_cannot_be_set_up(tmp_path: Path) -> None:
    settings = '\n[checks.python]\nsetup = "echo no compiler here >&2; exit 4"\n'
    project = red_project(tmp_path, settings)
    refused = project.command("run", "quick", "Say bye")
    assert refused.code == 3
    assert "no compiler here" in refused.stderr
    assert 'setup = "..." in [checks.python]' in refused.stderr
    shown = project.command("status", "--json").json
    assert "by actor" not in refused.stderr, "no agent was started"
    assert shown["features"], "the feature is there, and goes on when the setup works"


@pytest.mark.demand("R1.d")
def test_a_setup_that_leaves_no_test_to_be_found_is_followed_by_the_next(tmp_path: Path) -> None:
    """Groups come before extras: the group's requirement cannot be had without a registry, the next candidate can."""
    text = (
        "[build-system]\nrequires = []\n[project]\nname = 'thing'\nversion = '1'\n"
        "[dependency-groups]\ntest = ['pytest', 'thing-that-is-nowhere @ file:///nowhere/at/all']\n"
    )
    files = {"pyproject.toml": text, "tests/test_a.py": RED.replace("self.fail('old')", "pass")}
    project = make_project(tmp_path, files=files)
    data = project.command("check", "--json").json
    setup = next(row for row in data["checks"] if row["name"] == "setup")
    assert any("dependency group `test`" in note for note in setup["notes"]), setup


@pytest.mark.long
@pytest.mark.demand("R1.e", "R1.f")
def test_far_too_few_tests_is_a_finding_and_nothing_is_installed_by_the_name_of_an_import(
    tmp_path: Path,
) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n',
        "tests/test_x.py": "import railroad\nimport yaml\n"
        + "".join(f"def test_{n}(): pass\n" for n in range(40)),
    }
    project = make_project(tmp_path, files=files)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # its runner is there, what is imported is not
    done = project.program("check", "--json", env={"PIP_NO_INDEX": "1", "PATH": path})
    assert done.code == 1, done
    (found,) = [row for row in done.json["checks"] if row["name"] == "tests found"]
    assert found["outcome"] == "failed"
    assert "the test files have 40 test functions" in found["summary"]
    logs = [
        path.read_text(errors="replace")
        for path in (project.root / ".phasegate/checks").rglob("setup.log")
    ]
    tried = [line for line in "\n".join([done.stderr, *logs]).splitlines() if "pip install" in line]
    assert tried, "control: a setup was tried"
    assert not [line for line in tried if "railroad" in line or "yaml" in line.lower()]
