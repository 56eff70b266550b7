"""Geometry of the charts of a feature: the graph of its packages and the time axis.

Positions are computed here; the templates draw them as SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from phasegate.core.plan.dependencies import compute_waves
from phasegate.engine.views.feature import TimelineBar
from phasegate.engine.views.overview import PackageCard
from phasegate.interfaces.html.environment import parse_timestamp

LinkBuilder = Callable[[str], str | None]

_NODE_WIDTH = 208
_NODE_HEIGHT = 74
_GAP_X = 60
_GAP_Y = 16
_ROW_STEP = _NODE_HEIGHT + _GAP_Y
_CHART_WIDTH = 1160
_LABEL_WIDTH = 190
_PLOT_WIDTH = _CHART_WIDTH - _LABEL_WIDTH - 50
_ROW_HEIGHT = 24
_MIN_BAR_WIDTH = 3
# A gap without work is folded if it is longer than this share of the busy time ...
_MIN_FOLDED_SHARE = 0.08
_MIN_FOLDED_S = 30.0
# ... and is then drawn with this share of the busy time
_FOLDED_WIDTH = 0.03
_MIN_TICK_DISTANCE = 0.1
_MAX_TICKS = 6
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400
_TICK_STEPS_S = (
    *(1, 2, 5, 10, 20, 30),
    *(minutes * _MINUTE_S for minutes in (1, 2, 5, 10, 20, 30)),
    *(hours * _HOUR_S for hours in (1, 2, 4, 12)),
    *(_DAY_S, 7 * _DAY_S),
)
# Later ones are drawn over earlier ones
_DRAW_ORDER = ("step", "agent", "gate")


def no_link(_name: str) -> None:
    """Return no link, for a page that links nowhere."""


# --- package graph


class GraphNode(NamedTuple):
    """A package at its position in the graph."""

    card: PackageCard
    x: int
    y: int
    state: str
    href: str | None


class PackageGraph(NamedTuple):
    """Packages, wave by wave from left to right, and lines to the packages that wait for them."""

    width: int
    height: int
    label: str
    nodes: list[GraphNode]
    # x and y of the start and of the end of each line
    edges: list[tuple[int, int, int, int]]
    node_width: int = _NODE_WIDTH
    node_height: int = _NODE_HEIGHT


def build_package_graph(packages: Sequence[PackageCard], build_link: LinkBuilder) -> PackageGraph:
    """Lay out the dependency graph of work packages."""
    cards = {card.id: card for card in packages}
    waits_for = {
        card.id: [name for name in card.waits_for or () if name in cards] for card in packages
    }
    waves = compute_waves(waits_for)
    height = max(map(len, waves)) * _ROW_STEP + _GAP_Y

    nodes = {}
    for column, wave in enumerate(waves):
        x = _GAP_Y + column * (_NODE_WIDTH + _GAP_X)
        top = (height - len(wave) * _ROW_STEP) // 2 + _GAP_Y // 2
        for row, name in enumerate(wave):
            card = cards[name]
            nodes[name] = GraphNode(
                card=card,
                x=x,
                y=top + row * _ROW_STEP,
                state=_describe_state(card),
                href=build_link(name),
            )

    edges = [
        _connect_nodes(nodes[other], nodes[name])
        for name in waits_for
        for other in _iter_direct_dependencies(name, waits_for)
    ]
    dependencies = "; ".join(
        f"{name} waits for {', '.join(others)}" for name, others in waits_for.items() if others
    )
    return PackageGraph(
        width=len(waves) * (_NODE_WIDTH + _GAP_X),
        height=height,
        label=f"{len(packages)} work packages. {dependencies}",
        nodes=[*nodes.values()],
        edges=edges,
    )


def _describe_state(card: PackageCard) -> str:
    state = "stopped" if card.standing == "stopped" else card.state.lower().replace("_", " ")
    return f"{state} · round {card.round}" if card.round > 1 else state


def _connect_nodes(start: GraphNode, end: GraphNode) -> tuple[int, int, int, int]:
    middle = _NODE_HEIGHT // 2
    return start.x + _NODE_WIDTH, start.y + middle, end.x, end.y + middle


def _iter_direct_dependencies(name: str, waits_for: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the dependencies of a package, without those it also has through another dependency."""
    others = waits_for[name]
    for other in others:
        if not any(other in waits_for[third] for third in others):
            yield other


# --- time axis


class TimeAxis(NamedTuple):
    """Maps time to a position between 0 and 1. Long gaps without work are folded."""

    # start time, end time, start position, end position
    segments: tuple[tuple[float, float, float, float], ...]
    # start position, end position, length of the gap in seconds
    folds: tuple[tuple[float, float, float], ...]

    def to_position(self, time_s: float) -> float:
        for start, end, first, last in self.segments:
            if time_s <= end:
                return first + (last - first) * max(0.0, time_s - start) / max(end - start, 1e-9)
        return 1.0

    def to_x(self, time_s: float) -> float:
        return _to_x(self.to_position(time_s))


def _to_x(position: float) -> float:
    return round(_LABEL_WIDTH + position * _PLOT_WIDTH, 1)


def build_axis(spans: Iterable[tuple[float, float]]) -> TimeAxis:
    """Build an axis that shows all of these spans."""
    busy = merge_spans(spans)
    busy_s = sum(end - start for start, end in busy) or 1.0
    # start time, end time, weight, is folded
    stretches: list[tuple[float, float, float, bool]] = []

    for number, (start, end) in enumerate(busy):
        if number:
            gap_start = busy[number - 1][1]
            gap_s = start - gap_start
            is_folded = gap_s > max(busy_s * _MIN_FOLDED_SHARE, _MIN_FOLDED_S)
            weight = busy_s * _FOLDED_WIDTH if is_folded else gap_s
            stretches.append((gap_start, start, weight, is_folded))
        stretches.append((start, end, end - start, False))

    total = sum(weight for _, _, weight, _ in stretches) or 1.0
    segments = []
    folds = []
    position = 0.0

    for start, end, weight, is_folded in stretches:
        after = position + weight / total
        segments.append((start, end, position, after))
        if is_folded:
            folds.append((position, after, end - start))
        position = after

    return TimeAxis(tuple(segments), tuple(folds))


class TimelineRow(NamedTuple):
    """A labelled row of bars for the time axis."""

    label: str
    bars: tuple[TimelineBar, ...]
    href: str | None = None


class GanttBar(NamedTuple):
    """A bar at its position."""

    bar: TimelineBar
    x: float
    width: float
    duration_s: float
    href: str | None


class GanttRow(NamedTuple):
    """A row at its position."""

    label: str
    href: str | None
    y: int
    bars: list[GanttBar]


class GanttChart(NamedTuple):
    """Rows of bars on one time axis."""

    width: int
    height: int
    # x and label
    ticks: list[tuple[float, str]]
    # x, width, length of the gap in seconds
    folds: list[tuple[float, float, float]]
    rows: list[GanttRow]


def build_gantt(
    rows: Sequence[TimelineRow],
    now_s: float,
    build_job_link: LinkBuilder,
    *,
    with_dates: bool = False,
) -> GanttChart | None:
    """Lay out rows of bars on a time axis, or return None if there are no bars.

    `with_dates`: label the axis with local dates and times instead of the time since its start.
    """
    spans = [_bar_span(bar, now_s) for row in rows for bar in row.bars]
    if not spans:
        return None

    axis = build_axis(spans)
    chart_rows = []
    for number, row in enumerate(rows):
        bars = []
        for bar in sorted(row.bars, key=lambda bar: _DRAW_ORDER.index(bar.kind)):
            start, end = _bar_span(bar, now_s)
            x = axis.to_x(start)
            bars.append(
                GanttBar(
                    bar=bar,
                    x=x,
                    width=max(axis.to_x(end) - x, _MIN_BAR_WIDTH),
                    duration_s=end - start,
                    href=build_job_link(bar.job),
                )
            )
        chart_rows.append(GanttRow(row.label, row.href, number * _ROW_HEIGHT, bars))

    return GanttChart(
        width=_CHART_WIDTH,
        height=len(rows) * _ROW_HEIGHT + 34,
        ticks=[*_iter_ticks(axis, with_dates=with_dates)],
        folds=[
            (_to_x(first), _to_x(last) - _to_x(first), idle_s) for first, last, idle_s in axis.folds
        ],
        rows=chart_rows,
    )


def _bar_span(bar: TimelineBar, now_s: float) -> tuple[float, float]:
    return parse_timestamp(bar.started), parse_timestamp(bar.ended) if bar.ended else now_s


def _iter_ticks(axis: TimeAxis, *, with_dates: bool) -> Iterator[tuple[float, str]]:
    """Yield the x and the label of each tick: a date, or the time since the start of the axis."""
    start = axis.segments[0][0]
    shown_s = axis.segments[-1][1] - start - sum(idle_s for _, _, idle_s in axis.folds)
    step = next((size for size in _TICK_STEPS_S if shown_s / size <= _MAX_TICKS), _TICK_STEPS_S[-1])
    last_position = -1.0

    for first, end in _find_unfolded_spans(axis):
        # The first tick at or after the start of the span
        number = -int((start - first) // step)
        while start + number * step <= end:
            position = axis.to_position(start + number * step)
            if position - last_position >= _MIN_TICK_DISTANCE:
                last_position = position
                label = _format_elapsed(number * step)
                if with_dates:
                    label = _format_date(start + number * step, step)
                yield _to_x(position), label
            number += 1


def _find_unfolded_spans(axis: TimeAxis) -> list[tuple[float, float]]:
    """Return the spans between two folds."""
    folds = {(first, end) for first, end, _ in axis.folds}
    cuts = [segment for segment in axis.segments if segment[2:] in folds]
    edges = [
        axis.segments[0][0],
        *(edge for segment in cuts for edge in segment[:2]),
        axis.segments[-1][1],
    ]

    return [*zip(edges[::2], edges[1::2], strict=True)]


def _format_date(time_s: float, step_s: int) -> str:
    """Format a local time so that ticks which are `step_s` apart differ."""
    pattern = "%b %d %H:%M" if step_s >= _MINUTE_S else "%H:%M:%S"
    return datetime.fromtimestamp(time_s).astimezone().strftime(pattern)


def _format_elapsed(seconds: int) -> str:
    if seconds < 2 * _MINUTE_S:
        return f"{seconds} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S} min"
    return f"{seconds / _HOUR_S:g} h"


def merge_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge overlapping spans and sort them."""
    merged: list[tuple[float, float]] = []

    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))

    return merged
