"""Time and cost: summed by feature, agent, role and day."""

from __future__ import annotations

from pathlib import Path

from phasegate.engine.views.spending import (
    SpentBy,
    feature_tiles,
    list_current_jobs,
    summarize_spending,
)
from phasegate.storage.row_events import (
    job_ended_event,
    job_started_event,
    package_changed_event,
    workflow_changed_event,
)
from phasegate.storage.rows import JobRow, PackageRow, WorkflowRow
from support.plain_project import TS, MemoryStore


def job(
    id_: str, feature: str, agent: str, role: str, day: int, seconds: int, cost_usd: float
) -> JobRow:
    return JobRow(
        feature=feature,
        id=id_,
        wp="WP01",
        phase=role,
        round=1,
        agent=agent,
        started=f"2026-01-{day:02}T10:00:00.000Z",
        ended=f"2026-01-{day:02}T10:00:{seconds:02}.000Z",
        outcome="done",
        tokens=100,
        cost_usd=cost_usd,
    )


def record(store: MemoryStore, *rows: JobRow) -> None:
    for row in rows:
        store.append_unconditionally(row.feature, TS, [job_ended_event(row)])


def workflow(feature: str) -> WorkflowRow:
    return WorkflowRow(
        feature=feature,
        type="feature",
        description="",
        base="main",
        phases="01-requirements 06-implementation",
        position=1,
        stage="working",
        round=1,
    )


def test_every_table_has_the_same_total_and_the_highest_cost_comes_first(tmp_path: Path) -> None:
    with MemoryStore(tmp_path) as store:
        record(
            store,
            job("a", "001-a", "codex", "implement", 2, 10, 1.0),
            job("b", "001-a", "claude", "review", 1, 20, 2.0),
            job("c", "002-b", "claude", "implement", 1, 5, 4.0),
        )
        view = summarize_spending(store)
    for table in view:
        assert sum(row.cost_usd for row in table) == 7.0
        assert sum(row.runs for row in table) == 3
    assert [(row.name, row.cost_usd) for row in view.features] == [("002-b", 4.0), ("001-a", 3.0)]
    assert [(row.name, row.cost_usd) for row in view.agents] == [("claude", 6.0), ("codex", 1.0)]
    assert [row.name for row in view.roles] == ["implement", "review"]
    assert [row.name for row in view.days] == ["2026-01-01", "2026-01-02"]
    assert [round(row.seconds) for row in view.days] == [25, 10]


def test_a_feature_without_jobs_has_a_tile_that_has_used_nothing(tmp_path: Path) -> None:
    with MemoryStore(tmp_path) as store:
        for slug in ("001-a", "002-b"):
            store.append_unconditionally(slug, TS, [workflow_changed_event(workflow(slug))])
        record(store, job("a", "001-a", "codex", "implement", 2, 10, 1.0))
        spent = {tile.card.feature: tile.spent for tile in feature_tiles(store)}
    assert spent["002-b"] == SpentBy("002-b")
    assert spent["001-a"].runs == 1


def test_only_jobs_that_have_not_ended_are_at_work(tmp_path: Path) -> None:
    running = job("b", "001-a", "codex", "review", 2, 10, 0.0)._replace(ended="", outcome="")
    with MemoryStore(tmp_path) as store:
        store.append_unconditionally("001-a", TS, [workflow_changed_event(workflow("001-a"))])
        record(store, job("a", "001-a", "codex", "implement", 2, 10, 1.0))
        store.append_unconditionally("001-a", TS, [job_started_event(running)])
        [tile] = feature_tiles(store)
    assert tile.at_work == ("WP01: review by codex",)


def test_a_job_that_a_replaced_package_has_left_is_not_at_work(tmp_path: Path) -> None:
    left = job("a", "001-a", "codex", "implement", 2, 10, 0.0)._replace(ended="", outcome="")
    package = PackageRow(feature="001-a", id="WP01", title="", state="DOING", since=TS)
    with MemoryStore(tmp_path) as store:
        store.append_unconditionally("001-a", TS, [workflow_changed_event(workflow("001-a"))])
        store.append_unconditionally("001-a", TS, [job_started_event(left)])
        store.append_unconditionally("001-a", TS, [package_changed_event(package)])
        assert list_current_jobs(store) == [left]  # the control
        replaced = package._replace(state="REPLACED")
        store.append_unconditionally("001-a", TS, [package_changed_event(replaced)])
        assert list_current_jobs(store) == []
