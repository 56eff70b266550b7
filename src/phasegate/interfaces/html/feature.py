"""The data of one feature that the board's feature page and the report show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from phasegate.engine.views.feature import FeatureView, PhaseView, TimelineBar
from phasegate.engine.views.overview import PackageCard
from phasegate.interfaces.html.charts import (
    GanttChart,
    LinkBuilder,
    PackageGraph,
    TimelineRow,
    build_gantt,
    build_package_graph,
    merge_spans,
    no_link,
)
from phasegate.interfaces.html.environment import (
    describe_card_merge,
    format_cost,
    format_duration,
    format_number,
    parse_timestamp,
    shorten_phase_name,
)


class WorkTime(NamedTuple):
    """Agent working time by role, total working time, and the agents' share of it."""

    by_role: dict[str, float]
    busy_s: float
    agent_share: float


class FeaturePage(NamedTuple):
    """The values that feature_parts.html shows."""

    view: FeatureView
    merge_text: str
    # empty before the first step
    started: str
    numbers: dict[str, str]
    # phase, CSS state, duration in seconds
    rail: list[tuple[PhaseView, str, float]]
    work: WorkTime
    graph: PackageGraph | None
    gantt: GanttChart | None


def build_feature_page(
    view: FeatureView,
    packages: Sequence[PackageCard],
    now_s: float,
    build_package_link: LinkBuilder = no_link,
    build_job_link: LinkBuilder = no_link,
) -> FeaturePage:
    """Collect the data for a page about a feature."""
    work = measure_work(view.bars)
    gate_checks = [check for phase in view.phases for check in phase.rounds]
    passed = sum(phase.status == "completed" for phase in view.phases)
    numbers = {
        "gates": f"{passed} of {len(view.phases)}",
        "sent back": str(sum(check.outcome.lower() != "passed" for check in gate_checks)),
        "agent runs": str(sum(bar.kind == "agent" for bar in view.bars)),
        "time": format_duration(work.busy_s),
        "tokens": format_number(view.spent.tokens),
        "cost": format_cost(view.spent.cost_usd),
    }

    return FeaturePage(
        view=view,
        merge_text=describe_card_merge(view.card),
        started=view.bars[0].started if view.bars else "",
        numbers=numbers,
        rail=[
            (phase, _choose_phase_state(view, phase), _measure_phase(phase, view.bars))
            for phase in view.phases
        ],
        work=work,
        graph=build_package_graph(packages, build_package_link) if packages else None,
        gantt=build_gantt(_build_rows(view, build_package_link), now_s, build_job_link),
    )


def _choose_phase_state(view: FeatureView, phase: PhaseView) -> str:
    if phase.status != "in_progress":
        return phase.status
    return {"blocked": "blocked", "working": view.now.standing}.get(view.now.stage, "now")


def _measure_phase(phase: PhaseView, bars: Iterable[TimelineBar]) -> float:
    times = [
        parse_timestamp(ts)
        for bar in bars
        if bar.phase == phase.key and bar.ended
        for ts in (bar.started, bar.ended)
    ]
    return max(times, default=0.0) - min(times, default=0.0)


def _build_rows(view: FeatureView, build_link: LinkBuilder) -> list[TimelineRow]:
    """Return a row for each phase and package with recorded time, sorted by start."""
    titles = {package.id: f"{package.id} {package.title}" for package in view.packages}
    phases = {
        phase.key: f"{phase.key.partition('-')[0]} {shorten_phase_name(phase.name)}"
        for phase in view.phases
    }
    bars_by_key: dict[str, list[TimelineBar]] = {}
    for bar in view.bars:
        bars_by_key.setdefault(bar.package or bar.phase, []).append(bar)

    return [
        TimelineRow(
            label=titles.get(key) or phases.get(key, key),
            bars=tuple(bars),
            href=build_link(key) if key in titles else None,
        )
        for key, bars in bars_by_key.items()
        if key
    ]


def measure_work(bars: Iterable[TimelineBar]) -> WorkTime:
    """Measure how long agents worked and how long anything was done."""
    by_role: dict[str, float] = {}
    agent_spans = []
    all_spans = []

    for bar in bars:
        if not bar.ended or bar.kind == "gate":
            continue

        span = (parse_timestamp(bar.started), parse_timestamp(bar.ended))
        all_spans.append(span)
        if bar.kind == "agent":
            agent_spans.append(span)
            by_role[bar.name] = by_role.get(bar.name, 0.0) + span[1] - span[0]

    busy_s = _sum_covered_s(all_spans)
    return WorkTime(by_role, busy_s, _sum_covered_s(agent_spans) / (busy_s or 1.0))


def _sum_covered_s(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in merge_spans(spans))
