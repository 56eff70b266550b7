"""One page about one feature, with nothing outside of it: for people who read it later, without us."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.trace import RequirementTrace
from phasegate.engine.views.overview import JobRow
from phasegate.engine.views.report import ReportView
from phasegate.interfaces.board.feature_pages import render_feature_header
from phasegate.interfaces.board.layout import format_cost, render_panel, render_table
from phasegate.interfaces.board.list_pages import render_verification
from phasegate.interfaces.html.markup import Child, Html, join_html, tag
from phasegate.interfaces.html.svg import (
    build_feature_rows,
    format_duration,
    parse_timestamp,
    render_gantt,
    render_package_graph,
    render_phase_rail,
    render_time,
)


def render_report(report: ReportView, made_at: str) -> str:
    """The whole page."""
    view = report.view
    style = (Path(__file__).parents[1] / "board" / "static" / "board.css").read_text(
        encoding="utf-8"
    )
    title = view.card.description or view.card.feature
    head = tag(
        "head",
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag(
            "meta",
            {
                "http-equiv": "Content-Security-Policy",
                "content": "default-src 'none'; style-src 'unsafe-inline'",
            },
        ),
        tag("title", f"{title} · Phasegate"),
        tag("style", Html(style)),
    )

    main = tag(
        "main",
        render_feature_header(view),
        tag("section.panel", {"aria-label": "Phases and gates"}, render_phase_rail(view)),
        render_panel("Requirements and their tests", _render_requirements(report)),
        render_panel("What people ordered", _render_orders(report)),
        render_panel("What agents asked", _render_questions(report)) if report.questions else None,
        render_panel("Work packages", render_package_graph(report.packages, lambda _: None))
        if report.packages
        else None,
        render_panel(
            "Where the time went",
            render_gantt(
                build_feature_rows(view, lambda _: None), parse_timestamp(made_at), lambda _: None
            ),
        ),
        render_panel("Gates", _render_gates(report)),
        render_panel(
            "Agents",
            render_table(
                ("started", "for", "role", "agent", "outcome", "time", "tokens", "cost"),
                [*map(_render_job_row, report.jobs)],
                "None.",
            ),
        ),
        render_panel(
            "What happened",
            tag(
                "ol.lines",
                {"tabindex": 0},
                *(_render_event_line(one.ts, one.line) for one in view.lines or ()),
            ),
        ),
        render_panel("Audit trail", render_verification(report.audit)),
        tag("p.quiet", "Made by Phasegate at ", render_time(made_at, with_day=True)),
    )

    return Html("<!doctype html>" + tag("html", {"lang": "en"}, head, tag("body", main)) + "\n")


def _render_row(*cells: Child) -> Html:
    return tag("tr", *(tag("td", cell) for cell in cells))


def _render_event_line(ts: str, line: str) -> Html:
    return tag("li", render_time(ts), " ", line)


def _render_requirements(report: ReportView) -> Html:
    names = ("requirement", "what", "packages", "commits", "tests", "missing")
    return render_table(
        names,
        [*map(_render_requirement_row, report.requirements)],
        report.untraced or "There is none.",
    )


def _render_requirement_row(requirement: RequirementTrace) -> Html:
    commits = [
        tag("div", tag("code", link.id[:12]), f" {link.subject}") for link in requirement.commits
    ]
    return _render_row(
        requirement.id,
        requirement.text,
        ", ".join(requirement.packages),
        commits,
        [tag("div", link.path) for link in requirement.tests],
        ", ".join(requirement.missing),
    )


def _render_orders(report: ReportView) -> Html:
    rows = [
        _render_row(
            render_time(one.ts, with_day=True), one.order, one.said, one.person, one.door, one.agent
        )
        for one in report.orders
    ]
    return render_table(
        ("when", "order", "in words", "by", "through", "asked by"), rows, "Nobody is on record."
    )


def _render_questions(report: ReportView) -> Html:
    rows = [
        _render_row(
            render_time(one.asked, with_day=True), one.work, one.text, one.answer or "–", one.by
        )
        for one in report.questions
    ]
    return render_table(("when", "for", "asked", "answered", "by"), rows, "None.")


def _render_gates(report: ReportView) -> Html:
    rows = [
        _render_row(
            render_time(one.at, with_day=True),
            phase.gate,
            one.round,
            one.outcome,
            "; ".join(one.reasons),
        )
        for phase in report.view.phases
        for one in phase.rounds
    ]
    return render_table(("when", "gate", "round", "outcome", "why"), rows, "None was checked.")


def _render_job_row(job: JobRow) -> Html:
    if job.ended:
        took = format_duration(parse_timestamp(job.ended) - parse_timestamp(job.started))
    else:
        took = ""

    where = job.wp or job.workflow_phase
    return _render_row(
        render_time(job.started, with_day=True),
        where,
        job.phase,
        join_html(job.agent, f" {job.model}" if job.model else ""),
        job.outcome or "runs",
        took,
        job.tokens or "–",
        format_cost(job.cost_usd),
    )
