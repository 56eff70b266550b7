"""The query side as its doors show it: one shape of a package, whoever asks, and wherever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phasegate.agents.spool_request import Status, WorktreeList
from phasegate.engine.spool_answers import answerer
from phasegate.engine.views import PackageCard, open_reader
from support.dispatch_project import SLUG, DispatchProject, approves, implements, make_project, package

FORM = "src/login.ts"


def asked_inside(project: DispatchProject, *requests: Status | WorktreeList) -> list[Any]:
    """What an agent inside a job is answered."""
    reader = open_reader(str(project.root))
    assert reader is not None
    with reader:
        answer = answerer(project.project, reader, SLUG, "WP01")
        return [json.loads(answer(request).stdout) for request in requests]


@pytest.mark.demand("D14.a", "D14.b", "W4.a")
def test_a_package_has_one_shape_whoever_asks(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"WP01": package(), "WP02": package("WP02", ["src/b.ts"], dependencies=["WP01"])})
    project.play(implements(FORM, package="WP01"), approves())
    assert project.command("dispatch", "WP01").code == 0
    page = project.command("status", "--json").json
    inside = asked_inside(project, Status("WP01", as_json=True), Status(None, as_json=True))
    ready = asked_inside(project, WorktreeList(everything=False, as_json=True))
    shapes = {
        "status": page["features"][0]["packages"],
        "status WP01": project.command("status", "WP01", "--json").json,
        "package show": [project.command("package", "show", "WP01", "--json").json],
        "package list": project.command("package", "list", "--json").json,
        "worktree list": project.command("worktree", "list", "--json").json,
        "status WP01 inside": inside[0],
        "status inside": inside[1],
        "worktree list inside": ready[0],
    }
    for where, cards in shapes.items():
        assert [[*card] for card in cards] == [[*PackageCard._fields]] * len(cards), where
        assert cards, where
    assert shapes["status WP01"] == shapes["status WP01 inside"]
    assert shapes["worktree list"] == shapes["worktree list inside"]
    shown = shapes["package show"][0]
    assert (shown["standing"], shown["plan"]["file_scope"], len(shown["jobs"])) == ("ended", [FORM], 2)
    assert [(card["id"], card["is_ready"], card["waits_for"]) for card in shapes["worktree list"]] == [
        ("WP02", True, ["WP01"])
    ]
