"""`phasegate plan` as a person uses it: overlaps are told at once, the graph is drawn, wrong plans are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.dispatch_project import SLUG, DispatchProject, make_project, package

OTHER = "002-other"


@pytest.fixture
def project(tmp_path: Path) -> DispatchProject:
    return make_project(
        tmp_path,
        {
            "WP01": package("WP01", ["src/a.ts"]),
            "WP02": package("WP02", ["src/a.ts", "src/b.ts"]),
            "WP03": package("WP03", ["src/c.ts"], dependencies=["WP01"]),
        },
    )


@pytest.mark.demand("D5.f")
def test_overlaps_are_told_when_a_plan_is_loaded(project: DispatchProject) -> None:
    done = project.command("plan", "load", f"kitty-specs/{SLUG}")
    assert done.code == 0
    assert "the second of each pair waits for the first: WP01 and WP02\n" in done.stderr
    assert json.loads(project.command("plan", "load", f"kitty-specs/{SLUG}", "--json").stdout) == [
        "WP01",
        "WP02",
        "WP03",
    ]


@pytest.mark.demand("D5.f")
def test_the_graph_is_drawn_and_told_to_programs(project: DispatchProject) -> None:
    said = project.command("plan", "show").stdout
    assert said.startswith(f"{SLUG}: 3 packages in 2 waves")
    assert "  WP02  PLANNED     Do WP02\n        `-- after WP01: both may change src/a.ts\n" in said
    told = project.command("plan", "show", "--json").json[SLUG]
    assert told["waves"] == [["WP01"], ["WP02", "WP03"]]
    assert told["overlaps"] == [
        {"packages": ["WP01", "WP02"], "entries": [["src/a.ts", "src/a.ts"]]}
    ]
    assert told["packages"][1]["waits_for"] == ["WP01"]


def test_a_feature_can_be_chosen(project: DispatchProject) -> None:
    folder = project.root / f"kitty-specs/{OTHER}/tasks"
    folder.mkdir(parents=True)
    (folder / "WP01.md").write_text(package("WP01").replace(SLUG, OTHER))
    assert project.command("plan", "load", str(folder.parent)).code == 0
    assert SLUG not in project.command("plan", "show", "--feature", OTHER).stdout
    assert project.command("plan", "show").stdout.count("wave 1:") == 2
    done = project.command("plan", "show", "--feature", "003-x")
    assert (done.code, "there is no recorded feature 003-x" in done.stderr) == (2, True)


def test_a_plan_that_goes_in_a_circle_is_refused_with_the_circle(project: DispatchProject) -> None:
    path = project.root / f"kitty-specs/{SLUG}/tasks/WP01.md"
    path.write_text(package("WP01", ["src/a.ts"], dependencies=["WP03"]))
    done = project.command("plan", "load", f"kitty-specs/{SLUG}")
    assert done.code == 2
    assert "form a dependency cycle: WP01 -> WP03 -> WP01" in done.stderr
