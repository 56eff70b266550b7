"""The pages of a package and of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phasegate.engine.views.job import JobView
from phasegate.engine.views.job_log import LogPage
from phasegate.engine.views.overview import JobRow, PackageCard
from phasegate.interfaces.board.layout import (
    build_path,
    format_cost,
    render_panel,
    render_standing,
    render_table,
)
from phasegate.interfaces.html.markup import Html, join_html, tag
from phasegate.interfaces.html.svg import format_duration, parse_timestamp, render_time


def render_package_page(repository: str, card: PackageCard, document: str) -> Html:
    """One package: where it stands, who worked on it, what it may change besides, and its plan."""
    base = build_path(repository, "feature", card.feature, card.id)
    scope = tag(
        "form",
        {
            "hx-post": f"{base}/allow",
            "hx-target": "#notice",
            "class": "starting",
            "hx-morph-skip": True,
        },
        tag("label", {"for": "path"}, "Path"),
        tag("input", {"name": "path", "id": "path", "required": True}),
        tag("label", {"for": "why"}, "Why"),
        tag("input", {"name": "text", "id": "why", "required": True}),
        tag(
            "button",
            {
                "type": "button",
                "hx-get": f"{base}/change",
                "hx-include": "closest form",
                "hx-target": "#change",
            },
            "Show the change",
        ),
        tag("button", {"type": "submit", "class": "primary"}, "Allow this path"),
        tag("div", {"id": "change"}),
    )

    if card.reason:
        blocked = tag("p.notice is-bad", card.reason, " ", card.remediation)
    else:
        blocked = None

    return join_html(
        tag(
            "p.mono quiet",
            tag("a", {"href": build_path(repository, "feature", card.feature)}, card.feature),
        ),
        tag("h1", f"{card.id} {card.title}"),
        tag(
            "p.quiet",
            render_standing(card.standing),
            f" {card.state} · round {card.round} · ",
            format_cost(card.spent.cost_usd),
        ),
        blocked,
        render_panel("Agents", render_jobs_table(repository, card.jobs or ())),
        render_panel(
            "Change and evidence",
            *(_render_lazy_part(f"{base}/part/{part}", part) for part in ("diff", "evidence")),
        ),
        render_panel(
            "Allow another path",
            tag("p.quiet", "A protected path is allowed as it is now, and no further."),
            scope,
        ),
        render_panel(
            "Plan",
            tag(
                "details",
                {"hx-morph-skip": True},
                tag("summary", "Show the plan"),
                tag("pre", document),
            ),
        ),
    )


def render_jobs_table(repository: str, jobs: Iterable[JobRow]) -> Html:
    """Runs of agents, one a line."""
    rows = [
        tag(
            "tr",
            tag("td", render_time(job.started, with_day=True)),
            tag(
                "td",
                tag(
                    "a",
                    {"href": build_path(repository, "job", job.id)},
                    f"{job.phase} by {job.agent}",
                ),
            ),
            tag("td", job.round),
            tag("td", job.outcome or "runs"),
            tag(
                "td.right",
                format_duration(parse_timestamp(job.ended) - parse_timestamp(job.started))
                if job.ended
                else "",
            ),
            tag("td.right", f"{job.tokens:,}".replace(",", " ") if job.tokens else "–"),
            tag("td.right", format_cost(job.cost_usd)),
        )
        for job in jobs
    ]
    return render_table(
        ("started", "who", "round", "outcome", "time", "tokens", "cost"),
        rows,
        "No agent has worked on it yet.",
    )


def render_job_page(repository: str, view: JobView) -> Html:
    """One run of an agent: what it printed, was told, changed and answered.

    What it claims beside what was seen.
    """
    row = view.row
    base = build_path(repository, "job", view.job)
    facts = _render_job_facts(row) if row else []
    claimed = [
        tag("tr", tag("th", {"scope": "row"}, name), tag("td", value))
        for name, value in _format_claims(view.claimed)
    ]
    falsely = [tag("li.is-bad", str(one)) for one in view.claimed_falsely]
    evidence = tag(
        "div.halves",
        render_panel(
            "What it claims",
            tag("table", tag("tbody", *claimed)) if claimed else tag("p.quiet", "Nothing."),
            *falsely,
        ),
        render_panel(
            "What was seen",
            tag("pre", view.evidence)
            if view.evidence
            else tag("p.quiet", "No check ran in its round."),
        ),
    )

    if row:
        title = f"{row.phase} by {row.agent}"
    else:
        title = view.job

    if row:
        about = " · ".join((row.wp or row.workflow_phase, f"round {row.round}"))
    else:
        about = ""

    up = build_path(repository, "feature", view.feature, *((row.wp,) if row and row.wp else ()))
    return join_html(
        tag("p.mono quiet", tag("a", {"href": up}, view.feature), f" · {view.job}"),
        tag(
            "div.head",
            tag("div", tag("h1", title), tag("p.quiet", about)),
            tag("dl.numbers", *facts),
        ),
        render_panel(
            "Output",
            tag(
                "div",
                {
                    "class": "log",
                    "id": "log",
                    "tabindex": 0,
                    "role": "log",
                    "aria-label": "Output",
                    "hx-get": f"{base}/log",
                    "hx-trigger": "load",
                    "hx-morph-skip": True,
                },
            ),
        ),
        render_panel(
            "Prompt, diff and answer",
            *(
                _render_lazy_part(f"{base}/part/{part}", part)
                for part in ("prompt", "diff", "answer")
            ),
        ),
        evidence,
    )


def _render_job_facts(row: JobRow) -> list[Html]:
    numbers = {
        "outcome": row.outcome or "runs",
        "time": format_duration(parse_timestamp(row.ended) - parse_timestamp(row.started))
        if row.ended
        else "",
        "read": f"{row.input_tokens:,}".replace(",", " ") if row.input_tokens else "–",
        "written": f"{row.output_tokens:,}".replace(",", " ") if row.output_tokens else "–",
        "cost": format_cost(row.cost_usd),
    }
    return [
        tag("div", tag("dt", name), tag("dd", value)) for name, value in numbers.items() if value
    ]


def _format_claims(claimed: object) -> Iterator[tuple[str, str]]:
    if isinstance(claimed, dict):
        for name, value in claimed.items():
            yield str(name), ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _render_lazy_part(path: str, name: str) -> Html:
    """Something long, fetched when it is wanted."""
    fetch = {
        "hx-get": path,
        "hx-trigger": "toggle once",
        "hx-target": f"#part-{name}",
        "hx-morph-skip": True,
    }
    return tag(
        "details",
        fetch,
        tag("summary", f"Show the {name}"),
        tag("div.part", {"id": f"part-{name}"}),
    )


def render_text(text: str, *, is_diff: bool) -> Html:
    """A kept text; the lines of a diff are told apart."""
    return tag("pre", *(map(_render_diff_line, text.splitlines()) if is_diff else (text,)))


def _render_diff_line(line: str) -> Html:
    if line[:3] not in ("+++", "---"):
        kind = {"+": "added", "-": "removed", "@": "hunk", "d": "file"}.get(line[:1], "")
    else:
        kind = "file"
    return tag("span", {"class": kind or None}, f"{line}\n")


def render_log_part(repository: str, job: str, page: LogPage) -> Html:
    """What came since the last time, and who asks for more.

    The first part also leads to what was before it.
    """
    base = build_path(repository, "job", job, "log")
    more = {"hx-get": f"{base}?from={page.end}", "hx-trigger": "every 1s", "hx-swap": "outerHTML"}
    return join_html(
        tag("pre", page.text) if page.text else None,
        None if page.is_over else tag("span.quiet", more, "…"),
    )


def render_log_start(repository: str, job: str, page: LogPage) -> Html:
    """The last page of a log, with a way to those before it."""
    return tag(
        "div",
        render_earlier_log_button(repository, job, page),
        render_log_part(repository, job, page),
    )


def render_earlier_log_button(repository: str, job: str, page: LogPage) -> Html:
    """A button that puts the page before this one in its own place."""
    if not page.start:
        return Html("")

    fetch = {
        "hx-get": f"{build_path(repository, 'job', job, 'log')}?before={page.start}",
        "hx-swap": "outerHTML",
        "hx-target": "this",
    }
    return tag(
        "button",
        {"type": "button"},
        fetch,
        f"Show what was before ({page.start:,} bytes)".replace(",", " "),
    )
