"""Admission: caps that are reached, fallbacks that are free, limits in a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.config.settings import AgentSettings, Config, HarnessKind, LimitSettings
from phasegate.engine.jobs.admission import Admission, admit_job
from phasegate.storage.row_events import job_ended_event
from phasegate.storage.rows import JobRow
from support.job_ends import implementer
from support.memory_ports import MemoryRecord, MemoryTrails, memory_desk
from support.plain_project import TS, make_plain_project

FEATURE = "001-user-login"
LIMITS = LimitSettings(run_cost_usd=5, total_cost_usd=8, run_tokens=1000)
FAR = 4_000_000_000.0


def job(
    id_: str,
    *,
    feature: str = FEATURE,
    agent: str = "liar",
    tokens: int = 0,
    cost_usd: float = 0.0,
    limited_until_s: float = 0.0,
) -> JobRow:
    return JobRow(
        feature=feature,
        id=id_,
        wp="WP01",
        phase="implement",
        round=1,
        agent=agent,
        started=TS,
        ended=f"{TS}{id_}",
        tokens=tokens,
        cost_usd=cost_usd,
        retry_at_s=limited_until_s,
    )


def admit(folder: Path, *jobs: JobRow, fallback: str | None = None) -> Admission:
    record = MemoryRecord()
    for row in jobs:
        record.append_unconditionally(row.feature, TS, [job_ended_event(row)])
    settings = AgentSettings(HarnessKind("scripted"), fallback=fallback, model="m1")
    agents = {
        "liar": settings,
        "other": AgentSettings(HarnessKind("scripted"), fallback="third"),
        "third": AgentSettings(HarnessKind("scripted"), fallback="liar"),
        "missing": AgentSettings(HarnessKind("claude_code"), command=("no-such-program",)),
    }
    project = make_plain_project(folder, Config(limits=LIMITS, agents=agents))
    assigned = implementer()._replace(settings=settings)
    return admit_job(memory_desk(project, record, MemoryTrails()), assigned)


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ([job("a", cost_usd=2.5), job("b", cost_usd=2.5)], "run_cost_usd"),
        ([job("a", tokens=1000)], "run_tokens"),
        ([job("a", cost_usd=4), job("b", feature="002-b", cost_usd=4)], "total_cost_usd"),
    ],
)
def test_a_reached_cap_names_the_setting_that_raises_it(
    tmp_path: Path, rows: list[JobRow], key: str
) -> None:
    reached = admit(tmp_path, *rows).cap_reached
    assert reached is not None
    assert f"raise {key} in [limits]" in reached.remedy


def test_below_every_cap_none_is_reached(tmp_path: Path) -> None:
    rows = (job("a", cost_usd=4.99, tokens=999), job("b", feature="002-b", cost_usd=3.0))
    assert admit(tmp_path, *rows).cap_reached is None


def test_the_tokens_of_another_feature_count_for_no_cap(tmp_path: Path) -> None:
    assert admit(tmp_path, job("a", feature="002-b", tokens=5000)).cap_reached is None


def test_a_fallback_counts_only_while_it_is_not_rate_limited_itself(tmp_path: Path) -> None:
    assert admit(tmp_path / "1", fallback="other").has_fallback
    limited = job("a", agent="third", limited_until_s=FAR)
    assert not admit(tmp_path / "2", limited, fallback="third").has_fallback
    over = job("a", agent="other", limited_until_s=1.0)
    assert admit(tmp_path / "3", over, fallback="other").has_fallback
    assert not admit(tmp_path / "4").has_fallback


def test_the_fallback_of_a_fallback_counts_too(tmp_path: Path) -> None:
    other = job("a", agent="other", limited_until_s=FAR)
    assert admit(tmp_path / "1", other, fallback="other").has_fallback
    third = job("b", agent="third", limited_until_s=FAR)
    assert not admit(tmp_path / "2", other, third, fallback="other").has_fallback


def test_a_fallback_that_cannot_be_started_does_not_count(tmp_path: Path) -> None:
    assert not admit(tmp_path, fallback="missing").has_fallback


def test_limits_in_a_row_end_with_the_first_run_that_met_none(tmp_path: Path) -> None:
    rows = (
        job("a", limited_until_s=FAR),
        job("b"),
        job("c", limited_until_s=FAR),
        job("d", limited_until_s=FAR),
    )
    assert admit(tmp_path, *rows).consecutive_limits == 2


def test_the_row_of_a_started_job_has_no_end(tmp_path: Path) -> None:
    row = admit(tmp_path).started_row
    assert (row.wp, row.phase, row.agent, row.model) == ("WP01", "implement", "liar", "m1")
    assert (row.ended, row.outcome) == ("", "")
    assert row.started
