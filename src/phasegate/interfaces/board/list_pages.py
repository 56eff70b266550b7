"""The pages over all features: the overview, the timeline, the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from phasegate.core.display.status import describe_merge
from phasegate.engine.views.audit import AuditReport, RecordedEvent
from phasegate.engine.views.spending import FeatureTile, SpendingView, SpentBy
from phasegate.interfaces.board.layout import (
    MAX_TILES,
    build_path,
    format_cost,
    render_notice,
    render_panel,
    render_standing,
    render_table,
)
from phasegate.interfaces.html.markup import Html, join_html, tag
from phasegate.interfaces.html.svg import (
    TimelineRow,
    format_duration,
    render_gantt,
    render_time,
    shorten_phase_name,
)

MAX_ENTRIES = 100


def render_overview_page(
    tiles: Mapping[str, Sequence[FeatureTile]], problems: Mapping[str, str], page: int
) -> Html:
    """All features: those that wait for a person, those in work, those that have ended."""
    every = [(place, tile) for place, found in tiles.items() for tile in found]
    groups = {
        "Waiting for you": [
            one for one in every if one[1].card.standing in ("waiting", "stopped", "")
        ],
        "In work": [one for one in every if one[1].card.standing == "working"],
        "Ended": [one for one in every if one[1].card.standing == "ended"],
    }

    several = len(tiles) > 1
    shown = groups["Ended"][(page - 1) * MAX_TILES : page * MAX_TILES]
    parts = [
        _render_group(name, found if name != "Ended" else shown, len(found), several)
        for name, found in groups.items()
        if found
    ]
    more = len(groups["Ended"]) > page * MAX_TILES
    waiting = tag("b", f"{len(groups['Waiting for you'])} waiting for you")

    return join_html(
        tag("h1", "Features"),
        tag("p.quiet", f"{len(every)} on record, ", waiting),
        *(tag("p.notice is-bad", f"{place}: {why}") for place, why in problems.items()),
        *parts,
        tag("p.quiet", "Nothing has been started yet.") if not every else None,
        tag("p", tag("a", {"href": f"/?page={page + 1}"}, "older ones")) if more else None,
        _render_start_form([*tiles]),
    )


def _render_group(
    name: str, features: Sequence[tuple[str, FeatureTile]], total: int, with_repository: bool
) -> Html:
    heading = tag("h2.group", name, " ", tag("span.quiet", total))
    return join_html(
        (
            heading,
            tag(
                "ul.panel tiles",
                *(_render_tile(place, tile, with_repository) for place, tile in features),
            ),
        )
    )


def _render_tile(repository: str, tile: FeatureTile, with_repository: bool) -> Html:
    card = tile.card
    segments = [tag("span", {"class": f"segment is-{phase.status}"}) for phase in card.phases]
    now = next(
        (shorten_phase_name(phase.name) for phase in card.phases if phase.key == card.phase), ""
    )
    if card.standing == "working":
        last = "; ".join(tile.at_work)
    else:
        last = card.reason

    last = last or describe_merge(card.type, card.stage, card.base, card.merged)
    done = sum(phase.status == "completed" for phase in card.phases)
    used = " · ".join(
        (
            format_duration(tile.spent.seconds),
            f"{tile.spent.runs} runs",
            format_cost(tile.spent.cost_usd),
        )
    )

    kicker = " · ".join((*((repository,) if with_repository else ()), card.type, card.feature))

    return tag(
        "li.tile",
        tag(
            "div",
            tag("span.mono quiet", kicker),
            tag(
                "a.title",
                {"href": build_path(repository, "feature", card.feature)},
                card.description or card.feature,
            ),
            tag("span.quiet", last),
        ),
        tag(
            "div",
            tag(
                "span.segments",
                {"role": "img", "aria-label": f"{done} of {len(card.phases)} phases done"},
                *segments,
            ),
            tag("span.quiet", now if card.is_active else ""),
        ),
        tag("div.right", render_standing(card.standing), tag("span.quiet", used)),
    )


def _render_start_form(repositories: Sequence[str]) -> Html:
    """Begin a workflow from the page."""
    types = [tag("option", name) for name in ("feature", "fix", "quick", "test-run")]
    choose = tag(
        "select",
        {"name": "place", "id": "place"},
        *(tag("option", place) for place in repositories),
    )
    form = tag(
        "form.panel starting",
        {"hx-post": "/start", "hx-target": "#notice"},
        tag("label", {"for": "type"}, "Workflow"),
        tag("select", {"name": "type", "id": "type"}, *types),
        tag("label", {"for": "place"}, "Repository"),
        choose,
        tag("label", {"for": "description"}, "What you want"),
        tag("textarea", {"name": "description", "id": "description", "rows": 3, "required": True}),
        tag("button.primary", {"type": "submit"}, "Start"),
    )

    return tag(
        "details",
        {"id": "starting", "hx-morph-skip": True},
        tag("summary", "Start a feature"),
        form,
    )


def render_timeline_page(
    rows: Sequence[TimelineRow],
    spent: Mapping[str, SpendingView],
    now_s: float,
    job_links: Mapping[str, str],
) -> Html:
    """All features on one axis, and what was spent by agent, role and day."""
    parts: list[Html] = [
        tag("h1", "Timeline"),
        render_panel("All features", render_gantt(rows, now_s, job_links.get)),
    ]

    for place, view in spent.items():
        groups = {
            "By feature": view.features,
            "By agent": view.agents,
            "By role": view.roles,
            "By day": view.days,
        }

        named = f" in {place}" if len(spent) > 1 else ""
        parts.append(
            tag(
                "div.halves",
                *(
                    render_panel(f"{name}{named}", _render_spending_table(found))
                    for name, found in groups.items()
                ),
            )
        )

    return join_html(parts)


def _render_spending_table(spendings: Sequence[SpentBy]) -> Html:
    most = max((one.cost_usd or one.seconds for one in spendings), default=0.0)
    rows = []

    for one in spendings[:MAX_TILES]:
        if most:
            share = (one.cost_usd or one.seconds) / most
        else:
            share = 0.0

        meter = tag(
            "meter",
            {"value": f"{share:.3f}", "min": 0, "max": 1, "aria-label": f"share of {one.name}"},
        )
        cells = (
            one.runs,
            format_duration(one.seconds),
            f"{one.tokens:,}".replace(",", " "),
            format_cost(one.cost_usd),
        )

        rows.append(
            tag(
                "tr",
                tag("th", {"scope": "row"}, one.name),
                *(tag("td.right", cell) for cell in cells),
                tag("td", meter),
            )
        )

    return render_table(("", "runs", "time", "tokens", "cost", "share"), rows, "Nothing yet.")


def render_audit_page(
    repository: str, repositories: Sequence[str], entries: Sequence[RecordedEvent], feature: str
) -> Html:
    """The chain of state changes, newest first, and its verification."""
    rows = [
        tag(
            "tr",
            tag("td.right mono", one.position),
            tag("td", render_time(one.ts, with_day=True)),
            tag(
                "td",
                tag("a", {"href": build_path(repository, "feature", one.feature)}, one.feature)
                if one.feature
                else "–",
            ),
            tag("td.mono", one.kind),
            tag("td.mono payload", one.payload.decode("utf-8", "replace")[:400]),
        )
        for one in entries
    ]

    query = {"at": repository, "feature": feature}

    if len(entries) == MAX_ENTRIES:
        older = tag(
            "a",
            {"href": f"/audit?{urlencode({**query, 'before': entries[-1].position})}"},
            "older entries",
        )
    else:
        older = None

    others = [
        tag(
            "a",
            {
                "href": f"/audit?{urlencode({'at': other})}",
                "aria-current": "page" if other == repository else None,
            },
            other,
            " ",
        )
        for other in repositories
    ]

    verify = {
        "class": "primary",
        "type": "button",
        "hx-post": build_path(repository, "verify"),
        "hx-target": "#verified",
    }

    return join_html(
        tag("div.head", tag("h1", "Audit"), tag("button", verify, "Verify now")),
        tag("div", {"id": "verified", "role": "status", "hx-morph-skip": True}),
        tag("p", *others) if len(repositories) > 1 else None,
        render_panel(
            f"Entries of {feature}" if feature else "Entries",
            render_table(
                ("entry", "when", "feature", "kind", "what"), rows, "Nothing is recorded yet."
            ),
            older,
        ),
    )


def render_verification(report: AuditReport) -> Html:
    """Whether everything is as it was written."""
    if report.ok:
        return render_notice(
            f"Verified: {report.entries} entries, {report.trails} trails.", " ".join(report.notes)
        )

    first = report.problems[0]
    return render_notice(
        f"NOT VERIFIED. {first.where}: {first.why}",
        f"{len(report.problems)} problems",
        is_error=True,
    )
