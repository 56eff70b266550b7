"""The graph of a plan: every edge is there with its reason, and no two overlapping packages share a wave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.paths.glob import may_overlap
from phasegate.core.plan.plan_view import PlanView, build_plan_view, render_plan
from phasegate.core.plan.work_package import WorkPackage


def package(number: int, *scope: str, after: tuple[str, ...] = ()) -> WorkPackage:
    return WorkPackage(
        work_package_id=f"WP{number:02}",
        title=f"Do {number}",
        feature_slug="001-a",
        file_scope=scope,
        dependencies=after,
    )


@pytest.mark.demand("D5.f")
def test_the_drawing_shows_waves_edges_and_the_reason_for_each() -> None:
    plan = [
        package(1, "src/model.py"),
        package(2, "src/app.py", "docs/"),
        package(3, "src/form.py", "src/app.py", after=("WP01",)),
        package(4, "docs/form.md", after=("WP02",)),
    ]
    assert [*render_plan(build_plan_view(plan, {"WP01": "DONE"}))] == [
        "001-a: 4 packages in 2 waves",
        "wave 1: in parallel",
        "  WP01  DONE        Do 1",
        "  WP02  PLANNED     Do 2",
        "wave 2: in parallel",
        "  WP03  PLANNED     Do 3",
        "        |-- after WP01: depends on it",
        "        `-- after WP02: both may change src/app.py",
        "  WP04  PLANNED     Do 4",
        "        `-- after WP02: depends on it; both may change docs/form.md",
        "2 overlaps of scope: the later package waits for the earlier",
    ]


@pytest.mark.demand("D5.f")
def test_overlaps_are_found_before_anybody_works() -> None:
    view = build_plan_view([package(1, "src/**"), package(2, "src/a/*.py", "tests/")], {})
    (overlap,) = view.overlaps
    assert overlap.packages == ("WP01", "WP02")
    assert overlap.entries == (("src/**", "src/a/*.py"),)
    assert view.packages[1].dependencies == ()
    assert view.packages[1].waits_for == ("WP01",)


def test_many_shared_paths_are_named_in_part() -> None:
    files = [f"src/{n}.py" for n in range(9)]
    text = "\n".join(render_plan(build_plan_view([package(1, *files), package(2, *files)], {})))
    assert "both may change src/0.py, src/1.py, src/2.py and 6 more" in text


_SCOPES = st.lists(
    st.sampled_from(["a/x", "a/", "a/**", "b/*.py", "b/c.py", "c", "*.md", "d/e"]),
    min_size=1,
    max_size=3,
)


@st.composite
def plans(draw: st.DrawFn) -> list[WorkPackage]:
    scopes = draw(st.lists(_SCOPES, min_size=1, max_size=7))
    before = [
        draw(
            st.lists(
                st.sampled_from([f"WP{n:02}" for n in range(1, at + 1)]), unique=True, max_size=2
            )
        )
        if at
        else []
        for at in range(len(scopes))
    ]
    return [package(at + 1, *scope, after=tuple(before[at])) for at, scope in enumerate(scopes)]


@given(plans())
def test_every_package_is_drawn_once_and_none_beside_one_that_it_overlaps(
    plan: list[WorkPackage],
) -> None:
    view: PlanView = build_plan_view(plan, {})
    ids = sorted(one.work_package_id for one in plan)
    assert (
        sorted(id_ for wave in view.waves for id_ in wave)
        == ids
        == sorted(node.id for node in view.packages)
    )
    wave_of = {node.id: node.wave for node in view.packages}
    for node in view.packages:
        assert all(wave_of[other] < node.wave for other in node.waits_for)
    for one in plan:
        for other in plan:
            meets = any(may_overlap(a, b) for a in one.file_scope for b in other.file_scope)
            if one is not other and meets:
                assert wave_of[one.work_package_id] != wave_of[other.work_package_id]
    text = "\n".join(render_plan(view))
    assert all(text.count(f"\n  {id_}  ") == 1 for id_ in ids)
