"""Pictures of a feature: the rail of its phases, the graph of its packages, where its time went.

Attributes only, no style: the content security policy allows none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from phasegate.core.plan.dependencies import compute_waves
from phasegate.engine.views.feature import FeatureView, PhaseView, TimelineBar
from phasegate.engine.views.overview import PackageCard
from phasegate.interfaces.html.markup import Html, tag

LinkBuilder = Callable[[str], str | None]

_NODE_WIDTH = 208
_NODE_HEIGHT = 74
_GAP_X = 60
_GAP_Y = 16
_CHART_WIDTH = 1160
_LABEL_WIDTH = 190
_ROW_HEIGHT = 24
# Of the busy time: what is longer is folded to so much
_MIN_FOLDED_SHARE = 0.08
_FOLDED_WIDTH = 0.03
_ROLES = ("plan", "challenge", "implement", "review", "archive")


def parse_timestamp(ts: str) -> float:
    """Seconds since 1970 of a recorded time."""
    return datetime.fromisoformat(ts).timestamp()


def render_time(ts: str, *, with_day: bool = False) -> Html:
    """A recorded time as the person's clock shows it."""
    if not ts:
        return Html("")

    local = datetime.fromisoformat(ts).astimezone()
    return tag(
        "time", {"datetime": ts}, local.strftime("%Y-%m-%d %H:%M" if with_day else "%H:%M:%S")
    )


def format_duration(seconds: float) -> str:
    """A length of time in words."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"

    return f"{seconds / 3600:.1f} h"


def shorten_phase_name(name: str) -> str:
    """A phase's name without its number, which stands beside it."""
    return name.partition(" - ")[2].replace("Cicd", "CI/CD") or name


# --- the rail
# --------------------------------------------------------------------------------------------------------


def render_phase_rail(view: FeatureView) -> Html:
    """The phases in their order, each with its gate, how long it took and its rounds."""
    return tag(
        "ol.rail", {"aria-label": "Phases"}, *(_render_phase(view, phase) for phase in view.phases)
    )


def _render_phase(view: FeatureView, phase: PhaseView) -> Html:
    is_now = phase.status == "in_progress"
    if not is_now:
        state = phase.status
    else:
        state = {"blocked": "blocked", "working": view.now.standing}.get(view.now.stage, "now")

    taken = _measure_phase(phase, view.bars)
    told = {"completed": "passed", "pending": "to come"}.get(phase.status, "now")
    if len(phase.rounds) > 1:
        rounds = [_round_dot(one.round, one.outcome) for one in phase.rounds]
    else:
        rounds = []

    return tag(
        "li",
        {"class": f"stop is-{state}", "aria-current": "step" if is_now else None},
        tag("span.disc", {"aria-hidden": "true"}, phase.key.partition("-")[0]),
        tag("span.name", shorten_phase_name(phase.name)),
        tag("span.took", format_duration(taken) if taken else "", tag("span.hidden", f" {told}")),
        tag("span.rounds", *rounds),
    )


def _round_dot(number: int, outcome: str) -> Html:
    label = f"round {number}: {outcome}"
    return tag(
        "span",
        {"class": f"dot is-{outcome.lower()}", "title": label, "role": "img", "aria-label": label},
    )


def _measure_phase(phase: PhaseView, bars: Iterable[TimelineBar]) -> float:
    times = [
        (parse_timestamp(bar.started), parse_timestamp(bar.ended))
        for bar in bars
        if bar.phase == phase.key and bar.ended
    ]
    return max((end for _, end in times), default=0.0) - min(
        (start for start, _ in times), default=0.0
    )


# --- the graph
# -------------------------------------------------------------------------------------------------------


def render_package_graph(packages: Sequence[PackageCard], build_link: LinkBuilder) -> Html:
    """The packages as nodes, wave by wave from left to right, with lines from each to those that
    wait for it.
    """
    by_id = {one.id: one for one in packages}
    waits_for = {
        one.id: [name for name in one.waits_for or () if name in by_id] for one in packages
    }
    columns = compute_waves(waits_for)
    height = max(map(len, columns)) * (_NODE_HEIGHT + _GAP_Y) + _GAP_Y
    places = {
        name: (
            _GAP_Y + x * (_NODE_WIDTH + _GAP_X),
            (height - len(column) * (_NODE_HEIGHT + _GAP_Y)) // 2 + _compute_row_offset(y),
        )
        for x, column in enumerate(columns)
        for y, name in enumerate(column)
    }

    width = len(columns) * (_NODE_WIDTH + _GAP_X)
    lines = [
        _render_edge(places[other], places[name])
        for name, others in waits_for.items()
        for other in _iter_direct_dependencies(name, waits_for)
    ]
    nodes = [_render_node(by_id[name], place, build_link) for name, place in places.items()]
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    about = "; ".join(
        f"{name} waits for {', '.join(others)}" for name, others in waits_for.items() if others
    )
    label = f"{len(packages)} work packages. {about}"

    return tag(
        "div.scroll",
        {"tabindex": 0, "role": "region", "aria-label": label},
        tag("svg", size, *lines, *nodes),
    )


def _compute_row_offset(y: int) -> int:
    return _GAP_Y // 2 + y * (_NODE_HEIGHT + _GAP_Y)


def _iter_direct_dependencies(name: str, waits_for: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What a package waits for, without what it waits for through another.

    Those lines say nothing more.
    """
    others = waits_for[name]
    for other in others:
        if not any(other in waits_for[third] for third in others):
            yield other


def _render_edge(start: tuple[int, int], end: tuple[int, int]) -> Html:
    (x, y), (to_x, to_y) = (
        (start[0] + _NODE_WIDTH, start[1] + _NODE_HEIGHT // 2),
        (end[0], end[1] + _NODE_HEIGHT // 2),
    )
    middle = (x + to_x) // 2
    return tag("path.edge", {"d": f"M{x} {y} C{middle} {y} {middle} {to_y} {to_x} {to_y}"})


def _render_node(card: PackageCard, position: tuple[int, int], build_link: LinkBuilder) -> Html:
    x, y = position
    state = card.state.lower().replace("_", " ")
    told = " · ".join(
        (
            state if card.standing != "stopped" else "stopped",
            f"round {card.round}" if card.round > 1 else "",
        )
    )

    texts = (
        tag("rect", {"x": x, "y": y, "width": _NODE_WIDTH, "height": _NODE_HEIGHT, "rx": 10}),
        tag(
            "rect.edge-mark",
            {"x": x, "y": y + 12, "width": 4, "height": _NODE_HEIGHT - 24, "rx": 2},
        ),
        tag("text.mono", {"x": x + 16, "y": y + 22}, card.id),
        tag("text.title", {"x": x + 16, "y": y + 42}, _truncate(card.title, 26)),
        tag("text.quiet", {"x": x + 16, "y": y + 60}, told.strip(" ·")),
    )

    label = f"{card.id} {card.title}: {told.strip(' ·')}"
    inside = tag("g", {"class": f"node is-{card.state.lower()}"}, tag("title", label), *texts)
    href = build_link(card.id)
    if href:
        return tag("a", {"href": href}, inside)

    return inside


def _truncate(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars - 1]}…"


# --- the time axis
# ---------------------------------------------------------------------------------------------------


class TimeAxis(NamedTuple):
    """Time to a place between 0 and 1. Long stretches in which nothing was done are folded."""

    # From, to, place of each
    segments: tuple[tuple[float, float, float, float], ...]
    # Where it is folded, and how long that was: place, place, seconds
    folds: tuple[tuple[float, float, float], ...]

    def to_position(self, time_s: float) -> float:
        for start, end, first, last in self.segments:
            if time_s <= end:
                return first + (last - first) * max(0.0, time_s - start) / max(end - start, 1e-9)
        return 1.0


def build_axis(spans: Iterable[tuple[float, float]]) -> TimeAxis:
    """An axis on which all of these spans can be seen."""
    busy = _merge_spans(spans)
    worked = sum(end - start for start, end in busy) or 1.0
    # From, to, weight, folded
    stretches: list[tuple[float, float, float, bool]] = []

    for number, (start, end) in enumerate(busy):
        stretches.append((start, end, end - start, False))
        if number + 1 < len(busy):
            gap = busy[number + 1][0] - end
            folded = gap > max(worked * _MIN_FOLDED_SHARE, 30.0)
            stretches.append(
                (end, busy[number + 1][0], worked * _FOLDED_WIDTH if folded else gap, folded)
            )

    whole = sum(weight for _, _, weight, _ in stretches) or 1.0
    pieces = []
    idle = []
    at = 0.0

    for start, end, weight, folded in stretches:
        pieces.append((start, end, at, at + weight / whole))
        if folded:
            idle.append((at, at + weight / whole, end - start))

        at += weight / whole

    return TimeAxis(tuple(pieces), tuple(idle))


class TimelineRow(NamedTuple):
    """One line of the time axis."""

    label: str
    bars: tuple[TimelineBar, ...]
    href: str | None = None


def build_feature_rows(view: FeatureView, build_link: LinkBuilder) -> list[TimelineRow]:
    """A line for each phase and each package that has taken time, by when it began."""
    titles = {one.id: one.title for one in view.packages}
    names = {phase.key: shorten_phase_name(phase.name) for phase in view.phases}
    found: dict[str, list[TimelineBar]] = {}
    for bar in view.bars:
        found.setdefault(bar.package or bar.phase, []).append(bar)

    number = {phase.key: phase.key.partition("-")[0] for phase in view.phases}
    return [
        TimelineRow(
            f"{key} {titles[key]}"
            if key in titles
            else f"{number.get(key, '')} {names.get(key, key)}".strip(),
            tuple(bars),
            build_link(key) if key in titles else None,
        )
        for key, bars in found.items()
        if key
    ]


def render_gantt(rows: Sequence[TimelineRow], now_s: float, build_job_link: LinkBuilder) -> Html:
    """Where the time went: agents as bars by their role, gates as diamonds, our own steps as a thin
    line.
    """
    spans = [
        (parse_timestamp(bar.started), parse_timestamp(bar.ended) if bar.ended else now_s)
        for row in rows
        for bar in row.bars
    ]
    if not spans:
        return tag("p.quiet", "Nothing has taken time yet.")

    axis = build_axis(spans)
    room = _CHART_WIDTH - _LABEL_WIDTH - 50
    height = len(rows) * _ROW_HEIGHT + 34

    def x(when: float) -> float:
        return round(_LABEL_WIDTH + axis.to_position(when) * room, 1)

    parts: list[Html] = [*_render_ticks(axis, height, room)]

    for at, row in enumerate(rows):
        y = at * _ROW_HEIGHT
        name = tag("text.label", {"x": 0, "y": y + 17}, _truncate(row.label, 27))
        parts.append(tag("a", {"href": row.href}, name) if row.href else name)
        parts += [
            _render_bar(bar, x, y, now_s, build_job_link)
            for bar in sorted(row.bars, key=lambda bar: _DRAW_ORDER.index(bar.kind))
        ]

    svg = tag("svg", {"viewBox": f"0 0 {_CHART_WIDTH} {height}", "class": "gantt"}, *parts)
    return tag("div.scroll", {"tabindex": 0, "role": "region", "aria-label": "Time axis"}, svg)


_DRAW_ORDER = ("step", "agent", "gate")


def _render_bar(
    bar: TimelineBar,
    to_x: Callable[[float], float],
    y: int,
    now_s: float,
    build_job_link: LinkBuilder,
) -> Html:
    start = parse_timestamp(bar.started)
    if bar.ended:
        end = parse_timestamp(bar.ended)
    else:
        end = now_s

    taken = format_duration(end - start)
    if bar.kind == "gate":
        told = f"gate {bar.name}, round {bar.round}: {bar.outcome}"
        turned = f"translate({to_x(start)} {y + 12}) rotate(45)"
        mark = {
            "class": f"diamond is-{bar.outcome.lower()}",
            "x": -4,
            "y": -4,
            "width": 8,
            "height": 8,
            "transform": turned,
        }
        return tag("rect", mark, tag("title", told))

    width = max(to_x(end) - to_x(start), 3)
    if bar.kind == "step":
        place = {
            "class": "between",
            "x": to_x(start),
            "y": y + 10,
            "width": width,
            "height": 4,
            "rx": 2,
        }
        return tag("rect", place, tag("title", f"{bar.name}: {taken}"))

    role = bar.name if bar.name in _ROLES else "other"
    told = f"{bar.name} by {bar.agent}, round {bar.round}: {bar.outcome or 'runs'}, {taken}"
    is_bad = bar.outcome not in ("done", "")
    place = {
        "class": f"role-{role}{' is-bad' * is_bad}",
        "x": to_x(start),
        "y": y + 5,
        "width": width,
        "height": 14,
        "rx": 3,
    }

    drawn = tag("rect", place, tag("title", told))
    href = build_job_link(bar.job)
    if href:
        return tag("a", {"href": href, "aria-label": told}, drawn)

    return drawn


def _render_ticks(axis: TimeAxis, height: int, chart_width: float) -> Iterator[Html]:
    """Lines through the axis with the time since its beginning, and where it is folded."""
    start = axis.segments[0][0]
    worked = axis.segments[-1][1] - start - sum(seconds for _, _, seconds in axis.folds)
    step = next((size for size in _TICK_STEPS_S if worked / size <= 6), _TICK_STEPS_S[-1])
    last = -1.0

    for first, end in ((piece[0], piece[1]) for piece in _find_unfolded_spans(axis)):
        count = int((first - start) // step)
        for number in range(count, count + 200):
            when = start + number * step
            place = axis.to_position(when)
            if when > end or place - last < 0.07:
                if when > end:
                    break
                continue

            if when >= first:
                last = place
                at = round(_LABEL_WIDTH + place * chart_width, 1)
                yield tag("path.tick", {"d": f"M{at} 0V{height - 26}"})
                yield tag(
                    "text.quiet",
                    {"x": at, "y": height - 8, "text-anchor": "middle"},
                    _format_elapsed(number * step),
                )

    for first, end, seconds in axis.folds:
        left, right = (round(_LABEL_WIDTH + place * chart_width, 1) for place in (first, end))
        told = f"nothing was done for {format_duration(seconds)}"
        yield tag(
            "rect.idle",
            {"x": left, "y": 0, "width": right - left, "height": height - 26},
            tag("title", told),
        )


_TICK_STEPS_S = (
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    3600,
    7200,
    14400,
    43200,
    86400,
    604800,
)


def _find_unfolded_spans(axis: TimeAxis) -> list[tuple[float, float]]:
    """The stretches between two folds."""
    folds = {(first, end) for first, end, _ in axis.folds}
    cuts = [piece for piece in axis.segments if (piece[2], piece[3]) in folds]
    edges = [
        axis.segments[0][0],
        *(edge for piece in cuts for edge in piece[:2]),
        axis.segments[-1][1],
    ]

    return [*zip(edges[::2], edges[1::2], strict=True)]


def _format_elapsed(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds / 3600:g} h"


def measure_work(bars: Iterable[TimelineBar]) -> tuple[dict[str, float], float, float]:
    """How long agents worked by role, how long anything was done, and in which part of that an
    agent worked.
    """
    roles: dict[str, float] = {}
    agents = []
    all_ = []

    for bar in bars:
        if not bar.ended or bar.kind == "gate":
            continue

        span = (parse_timestamp(bar.started), parse_timestamp(bar.ended))
        all_.append(span)
        if bar.kind == "agent":
            agents.append(span)
            roles[bar.name] = roles.get(bar.name, 0.0) + span[1] - span[0]

    return roles, _sum_covered_s(all_), _sum_covered_s(agents) / (_sum_covered_s(all_) or 1.0)


def _sum_covered_s(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in _merge_spans(spans))


def _merge_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that meet as one, in their order."""
    found: list[tuple[float, float]] = []

    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))

    return found
