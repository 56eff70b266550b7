"""One page about one feature, with nothing outside of it: for people who read it later, without us."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.trace import Traced
from phasegate.engine.views.overview import Job
from phasegate.engine.views.report import ReportView
from phasegate.interfaces.board.feature_pages import feature_head
from phasegate.interfaces.board.layout import money, panel, table
from phasegate.interfaces.board.list_pages import verified_part
from phasegate.interfaces.html.markup import Child, Html, join, tag
from phasegate.interfaces.html.svg import clock, duration, feature_rows, gantt, graph, moment, rail


def report_page(report: ReportView, made: str) -> str:
    """The whole page."""
    view = report.view
    style = (Path(__file__).parents[1] / "board" / "static" / "board.css").read_text(encoding="utf-8")
    title = view.card.description or view.card.feature
    head = tag(
        "head",
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag(
            "meta",
            {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"},
        ),
        tag("title", f"{title} · Phasegate"),
        tag("style", Html(style)),
    )
    main = tag(
        "main",
        feature_head(view),
        tag("section.panel", {"aria-label": "Phases and gates"}, rail(view)),
        panel("Requirements and their tests", _requirements(report)),
        panel("What people ordered", _orders(report)),
        panel("What agents asked", _questions(report)) if report.questions else None,
        panel("Work packages", graph(report.packages, lambda _: None)) if report.packages else None,
        panel("Where the time went", gantt(feature_rows(view, lambda _: None), moment(made), lambda _: None)),
        panel("Gates", _gates(report)),
        panel(
            "Agents",
            table(
                ("started", "for", "role", "agent", "outcome", "time", "tokens", "cost"),
                [*map(_job, report.jobs)],
                "None.",
            ),
        ),
        panel(
            "What happened", tag("ol.lines", {"tabindex": 0}, *(_told(one.ts, one.line) for one in view.lines or ()))
        ),
        panel("Audit trail", verified_part(report.audit)),
        tag("p.quiet", "Made by Phasegate at ", clock(made, with_day=True)),
    )
    return Html("<!doctype html>" + tag("html", {"lang": "en"}, head, tag("body", main)) + "\n")


def _row(*cells: Child) -> Html:
    return tag("tr", *(tag("td", cell) for cell in cells))


def _told(ts: str, line: str) -> Html:
    return tag("li", clock(ts), " ", line)


def _requirements(report: ReportView) -> Html:
    names = ("requirement", "what", "packages", "commits", "tests", "missing")
    return table(names, [*map(_requirement, report.requirements)], report.untraced or "There is none.")


def _requirement(one: Traced) -> Html:
    commits = [tag("div", tag("code", link.id[:12]), f" {link.subject}") for link in one.commits]
    return _row(
        one.id,
        one.text,
        ", ".join(one.packages),
        commits,
        [tag("div", link.path) for link in one.tests],
        ", ".join(one.missing),
    )


def _orders(report: ReportView) -> Html:
    rows = [
        _row(clock(one.ts, with_day=True), one.order, one.said, one.person, one.door, one.agent)
        for one in report.orders
    ]
    return table(("when", "order", "in words", "by", "through", "asked by"), rows, "Nobody is on record.")


def _questions(report: ReportView) -> Html:
    rows = [
        _row(clock(one.asked, with_day=True), one.work, one.text, one.answer or "–", one.by) for one in report.questions
    ]
    return table(("when", "for", "asked", "answered", "by"), rows, "None.")


def _gates(report: ReportView) -> Html:
    rows = [
        _row(clock(one.at, with_day=True), phase.gate, one.round, one.outcome, "; ".join(one.reasons))
        for phase in report.view.phases
        for one in phase.rounds
    ]
    return table(("when", "gate", "round", "outcome", "why"), rows, "None was checked.")


def _job(job: Job) -> Html:
    took = duration(moment(job.ended) - moment(job.started)) if job.ended else ""
    where = job.wp or job.workflow_phase
    return _row(
        clock(job.started, with_day=True),
        where,
        job.phase,
        join(job.agent, f" {job.model}" if job.model else ""),
        job.outcome or "runs",
        took,
        job.tokens or "–",
        money(job.cost_usd),
    )
