"""The query side as its doors show it: one shape of a package, whoever asks, and wherever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phasegate.agents.spool.requests import StatusRequest, WorktreeListRequest
from phasegate.core.text.light_json import to_plain_data
from phasegate.engine.jobs.requests import make_request_handler
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.job import job_view
from phasegate.engine.views.overview import PackageCard, open_reader
from phasegate.storage.reader import StoreReader
from support.dispatch_project import (
    SLUG,
    DispatchProject,
    approves,
    implements,
    make_project,
    package,
)
from support.feature_project import SLUG as FEATURE_SLUG
from support.feature_project import FeatureProject, make_feature_project

FORM = "src/login.ts"


def asked_inside(
    project: DispatchProject, *requests: StatusRequest | WorktreeListRequest
) -> list[Any]:
    """What an agent inside a job is answered."""
    reader = open_reader(str(project.root))
    assert reader is not None
    with reader:
        answer = make_request_handler(project.project, reader, SLUG, "WP01", "a job")
        return [json.loads(answer(request).stdout) for request in requests]


@pytest.mark.demand("D14.a", "D14.b", "W4.a")
def test_a_package_has_one_shape_whoever_asks(tmp_path: Path) -> None:
    project = make_project(
        tmp_path, {"WP01": package(), "WP02": package("WP02", ["src/b.ts"], dependencies=["WP01"])}
    )
    project.play(implements(FORM, package="WP01"), approves())
    assert project.command("dispatch", "WP01").code == 0
    page = project.command("status", "--json").json
    inside = asked_inside(
        project, StatusRequest("WP01", as_json=True), StatusRequest(None, as_json=True)
    )
    ready = asked_inside(project, WorktreeListRequest(include_all=False, as_json=True))
    shapes = {
        "status": page["features"][0]["packages"],
        "status WP01": project.command("status", "WP01", "--json").json,
        "package show": [project.command("package", "show", "WP01", "--json").json],
        "package list": project.command("package", "list", "--json").json,
        "worktree list": project.command("worktree", "list", "--json").json,
        "status WP01 inside": inside[0],
        "status inside": inside[1]["features"][0]["packages"],
        "worktree list inside": ready[0],
    }
    for where, cards in shapes.items():
        assert [[*card] for card in cards] == [[*PackageCard._fields]] * len(cards), where
        assert cards, where
    assert shapes["status WP01"] == shapes["status WP01 inside"]
    assert shapes["worktree list"] == shapes["worktree list inside"]
    shown = shapes["package show"][0]
    assert (shown["standing"], shown["plan"]["file_scope"], len(shown["jobs"])) == (
        "ended",
        [FORM],
        2,
    )
    assert [
        (card["id"], card["is_ready"], card["waits_for"]) for card in shapes["worktree list"]
    ] == [("WP02", True, ["WP01"])]


@pytest.fixture(scope="module")
def carried(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[FeatureProject, StoreReader]]:
    """A feature that was carried to its last gate."""
    project = make_feature_project(tmp_path_factory.mktemp("views"))
    project.start()
    project.drive()
    reader = open_reader(str(project.root))
    assert reader is not None
    with reader:
        yield project, reader


@pytest.mark.demand("W4.a", "W4.b")
def test_a_feature_is_seen_with_every_gate_every_job_in_its_phase_and_what_may_be_ordered(
    carried: tuple[FeatureProject, StoreReader],
) -> None:
    project, reader = carried
    told = project.command("status", "--feature", FEATURE_SLUG, "--json").json
    view = told["detail"]
    assert view["card"] == told["workflow"]
    gates = reader.gates(FEATURE_SLUG)
    assert [
        (phase["key"], one["outcome"]) for phase in view["phases"] for one in phase["rounds"]
    ] == [(gate.phase, gate.outcome) for gate in gates]
    bars = view["bars"]
    assert bars == sorted(bars, key=lambda bar: bar["started"])
    assert {bar["job"] for bar in bars if bar["kind"] == "agent"} == {
        job.id for job in reader.jobs(FEATURE_SLUG)
    }
    assert all(bar["phase"] in {phase["key"] for phase in view["phases"]} for bar in bars)
    assert all(bar["started"] <= bar["ended"] for bar in bars)
    assert {"agent", "gate", "step"} == {bar["kind"] for bar in bars}
    assert any("test" in part for bar in bars for part in bar["parts_s"] or ())
    assert view["now"]["standing"] == "waiting"
    assert view["now"]["orders"] == ["run", "back", "complete", "escalate", "cancel"]
    assert project.command("status", "--json").json["detail"] is None


@pytest.mark.demand("D14.a")
def test_a_job_is_seen_with_its_prompt_its_logs_its_diff_its_claims_and_the_evidence(
    carried: tuple[FeatureProject, StoreReader],
) -> None:
    project, reader = carried
    builder, reviewer = (
        next(job for job in reader.jobs(FEATURE_SLUG) if (job.wp, job.phase) == ("WP01", role))
        for role in ("implement", "review")
    )
    view = job_view(project.project.location, builder.id[:8])
    assert (view.row, view.feature, builder.workflow_phase) == (
        builder,
        FEATURE_SLUG,
        "06-implementation",
    )
    assert view.prompt is not None
    assert (project.root / view.prompt.path).stat().st_size == view.prompt.bytes
    changed = project.git("diff", "--name-only", view.base, view.commit).splitlines()
    assert {"bye.py", "test_bye.py"} <= {*changed}
    assert isinstance(view.claimed, dict)
    assert view.claimed["job_id"] == builder.id
    assert "test" in view.evidence
    judged = job_view(project.project.location, reviewer.id)
    assert (judged.base, judged.commit) == (view.base, view.commit)
    shown = project.command("audit", "show", "--job", builder.id, "--json").json
    assert shown == json.loads(json.dumps(to_plain_data(view)))
    writer = next(job for job in reader.jobs(FEATURE_SLUG) if job.phase == "plan")
    assert job_view(project.project.location, writer.id).commit


def test_the_trail_of_a_job_is_shown_also_where_the_store_is_damaged(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"WP01": package()})
    project.play(implements(FORM), approves())
    project.dispatch()
    job = project.jobs()[0].id
    before = project.command("audit", "show", "--job", job, "--json").json
    project.project.location.store_path.write_bytes(b"no store")
    after = project.command("audit", "show", "--job", job, "--json").json
    assert (before["row"]["id"], after["row"]) == (job, None)
    assert after["entries"] == before["entries"]


def test_the_stream_goes_on_from_any_cursor_as_if_it_had_been_read_from_the_beginning(
    carried: tuple[FeatureProject, StoreReader],
) -> None:
    _, reader = carried
    whole = [*JournalFollower(reader, after=0).read_events()]
    assert [event.position for event in whole] == [*range(1, len(whole) + 1)]
    for cursor in (0, 1, len(whole) // 2, len(whole)):
        assert [*JournalFollower(reader, after=cursor).read_events()] == whole[cursor:]
    assert [*JournalFollower(reader).read_events()] == []
    assert [*JournalFollower(reader, FEATURE_SLUG, after=0).read_events()] == [
        e for e in whole if e.feature == FEATURE_SLUG
    ]
