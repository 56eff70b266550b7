"""The pages: a view of the engine in, HTML out. What each of them shows is the same that the command line shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from phasegate.doors.html.drawing import (
    Row,
    clock,
    duration,
    feature_rows,
    gantt,
    graph,
    moment,
    rail,
    short_name,
    worked,
)
from phasegate.doors.html.markup import Child, Html, join, tag
from phasegate.engine.audit_view import AuditReport, Recorded
from phasegate.engine.feature_view import FeatureView, StandingView
from phasegate.engine.job_log import LogPage
from phasegate.engine.job_view import JobView
from phasegate.engine.orders import NEED_TEXT
from phasegate.engine.spending_view import FeatureTile, SpendingView, SpentBy
from phasegate.engine.views import AgentQuestion, Job, PackageCard
from phasegate.rules.board import whereabouts

MOST_TILES, MOST_LINES, MOST_ENTRIES = 50, 40, 100
_PAGES = {"/": "Features", "/decisions": "Decisions", "/timeline": "Timeline", "/audit": "Audit"}
_HTMX = '{"includeIndicatorCSS":false,"allowEval":false,"extensions":"sse"}'
_ORDERS = {  # how a button is called, and what it asks before it is done
    "complete": ("Merge into {base}", "Archive {feature} and merge it into {base}?"),
    "resolve": ("Resolved: try again", ""),
    "advance": ("On to the next phase", ""),
    "retry": ("Another round", ""),
    "run": ("Go on", ""),
    "stop": ("Stop the run", "End the run of {feature}? What its agents left is saved."),
    "escalate": ("Hold for a person", ""),
    "back": ("Back to", "Take {feature} back? Its gates from there on must pass again."),
    "cancel": ("Cancel", "End {feature} without a merge? Its branches are kept."),
}
_STANDINGS = {"waiting": "waiting for you", "working": "in work", "stopped": "stopped", "ended": "ended"}


class Shell(NamedTuple):
    """What is around every page."""

    path: str  # with its query
    page_secret: str
    places: Sequence[str]  # the names of the repositories
    place: str = ""  # the one that the page is about
    feature: str = ""
    waiting: int = 0


def address(place: str, *parts: str) -> str:
    """The path of something in a repository."""
    return "/".join(("", "at", *(quote(part, safe="") for part in (place, *parts))))


def whole(shell: Shell, title: str, *content: Child) -> Html:
    """A whole page. Its main part asks for itself again when something has moved that it shows."""
    live = {
        "id": "live",
        "role": "status",
        "hx-sse:connect": f"/events?{urlencode({'at': shell.place, 'feature': shell.feature})}",
    }
    again = {
        "hx-get": shell.path,
        "hx-trigger": "changed from:#live delay:150ms",
        "hx-select": "#main",
        "hx-swap": "outerMorph",
    }
    head = tag(
        "head",
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", {"name": "htmx-config", "content": _HTMX}),
        tag("title", f"{title} · Phasegate"),
        tag("link", {"rel": "stylesheet", "href": "/static/board.css"}),
        tag("link", {"rel": "icon", "href": "/static/board.svg"}),
        # Not deferred: htmx would begin before its extension is there.
        *(tag("script", {"src": f"/static/{name}"}) for name in ("htmx.min.js", "hx-sse.min.js", "board.js")),
    )
    header = tag(
        "header",
        tag("a.skip", {"href": "#main"}, "Skip to the content"),
        tag("a.brand", {"href": "/"}, "Phasegate"),
        tag("span.mono quiet", shell.place or ", ".join(shell.places)),
        tag("nav", {"aria-label": "Pages"}, *_links(shell)),
        tag("span", live, "live"),
    )
    body = {"hx-headers:inherited": f'{{"X-Phasegate":"{shell.page_secret}"}}'}
    main = tag("main", {"id": "main", "tabindex": -1}, again, *content)
    notice = tag("div", {"id": "notice", "role": "status", "aria-live": "polite"})
    return Html("<!doctype html>" + tag("html", {"lang": "en"}, head, tag("body", body, header, notice, main)))


def _links(shell: Shell) -> Iterator[Html]:
    here = shell.path.partition("?")[0]
    for path, name in _PAGES.items():
        count = tag("span.count", shell.waiting) if path == "/decisions" and shell.waiting else None
        yield tag(
            "a", {"href": path, "aria-current": "page" if path == here else None}, name, " " if count else None, count
        )


def notice(text: str, hint: str = "", *, is_bad: bool = False) -> Html:
    """What became of an order."""
    hints = tag("span.quiet", f" {hint}") if hint else None
    return tag("p", {"class": "notice is-bad" if is_bad else "notice"}, text, hints)


def panel(title: str, *content: Child, beside: Child = None) -> Html:
    """A part of a page with a heading."""
    heading = tag("div.heading", tag("h2", title), tag("span.quiet", beside))
    return tag("section.panel", heading, *content)


def money(cost_usd: float) -> str:
    """Dollars as people write them; a dash where no agent reported any."""
    return f"${cost_usd:.2f}" if cost_usd >= 0.005 else "–"


def pill(standing: str) -> Html:
    """Whether it is in work, waits, is stopped or has ended."""
    return tag("span", {"class": f"pill is-{standing or 'unknown'}"}, _STANDINGS.get(standing, standing or "not ours"))


# --- all features ----------------------------------------------------------------------------------------------------


def overview_page(tiles: Mapping[str, Sequence[FeatureTile]], problems: Mapping[str, str], page: int) -> Html:
    """All features: those that wait for a person, those in work, those that have ended."""
    every = [(place, tile) for place, found in tiles.items() for tile in found]
    groups = {
        "Waiting for you": [one for one in every if one[1].card.standing in ("waiting", "stopped", "")],
        "In work": [one for one in every if one[1].card.standing == "working"],
        "Ended": [one for one in every if one[1].card.standing == "ended"],
    }
    several = len(tiles) > 1
    shown = groups["Ended"][(page - 1) * MOST_TILES : page * MOST_TILES]
    parts = [
        _group(name, found if name != "Ended" else shown, len(found), several)
        for name, found in groups.items()
        if found
    ]
    more = len(groups["Ended"]) > page * MOST_TILES
    waiting = tag("b", f"{len(groups['Waiting for you'])} waiting for you")
    return join(
        tag("h1", "Features"),
        tag("p.quiet", f"{len(every)} on record, ", waiting),
        *(tag("p.notice is-bad", f"{place}: {why}") for place, why in problems.items()),
        *parts,
        tag("p.quiet", "Nothing has been started yet.") if not every else None,
        tag("p", tag("a", {"href": f"/?page={page + 1}"}, "older ones")) if more else None,
        _starting([*tiles]),
    )


def _group(name: str, found: Sequence[tuple[str, FeatureTile]], total: int, several: bool) -> Html:
    heading = tag("h2.group", name, " ", tag("span.quiet", total))
    return join((heading, tag("ul.panel tiles", *(_tile(place, tile, several) for place, tile in found))))


def _tile(place: str, tile: FeatureTile, several: bool) -> Html:
    card = tile.card
    segments = [tag("span", {"class": f"segment is-{phase.status}"}) for phase in card.phases]
    now = next((short_name(phase.name) for phase in card.phases if phase.key == card.phase), "")
    last = "; ".join(tile.at_work) if card.standing == "working" else card.reason
    last = last or whereabouts(card.type, card.stage, card.base, card.merged)
    done = sum(phase.status == "completed" for phase in card.phases)
    used = " · ".join((duration(tile.spent.seconds), f"{tile.spent.runs} runs", money(tile.spent.cost_usd)))
    kicker = " · ".join((*((place,) if several else ()), card.type, card.feature))
    return tag(
        "li.tile",
        tag(
            "div",
            tag("span.mono quiet", kicker),
            tag("a.title", {"href": address(place, "feature", card.feature)}, card.description or card.feature),
            tag("span.quiet", last),
        ),
        tag(
            "div",
            tag("span.segments", {"role": "img", "aria-label": f"{done} of {len(card.phases)} phases done"}, *segments),
            tag("span.quiet", now if card.is_active else ""),
        ),
        tag("div.right", pill(card.standing), tag("span.quiet", used)),
    )


def _starting(places: Sequence[str]) -> Html:
    """Begin a workflow from the page."""
    types = [tag("option", name) for name in ("feature", "fix", "quick", "test-run")]
    choose = tag("select", {"name": "place", "id": "place"}, *(tag("option", place) for place in places))
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
    return tag("details", {"id": "starting", "hx-morph-skip": True}, tag("summary", "Start a feature"), form)


# --- one feature -----------------------------------------------------------------------------------------------------


def feature_page(
    place: str, view: FeatureView, packages: Sequence[PackageCard], asked: Sequence[AgentQuestion], now_s: float
) -> Html:
    """One feature: what it waits for, its phases, its packages, what happened, where the time went."""
    card = view.card

    def to_package(id_: str) -> str:
        return address(place, "feature", card.feature, id_)

    lines = view.lines or ()
    happened = tag(
        "ol.lines",
        {"reversed": True, "tabindex": 0, "aria-label": "What happened, newest first"},
        *(_line(one.ts, one.line) for one in reversed(lines[-MOST_LINES:])),
    )
    roles, _, share = worked(view.bars)
    legend = [
        tag("span", {"class": f"key role-{role}"}, f"{role} ", tag("b", duration(taken)))
        for role, taken in roles.items()
    ]
    no_packages = tag("p.quiet", "The plan has no work packages yet.")
    return join(
        feature_head(view),
        *(question_box(place, one) for one in asked),
        decision(place, view.now, view.seq, is_working=card.worker is not None),
        tag("section.panel", {"aria-label": "Phases and gates"}, rail(view)),
        tag(
            "div.halves",
            panel(
                "Work packages",
                graph(packages, to_package) if packages else no_packages,
                beside="what waits for what",
            ),
            panel("What happened", happened, beside=f"{view.seq} entries, chained"),
        ),
        panel(
            "Where the time went",
            tag("p.legend", f"agents worked {share:.0%} of it", *legend, tag("span.key between", "our checks")),
            gantt(feature_rows(view, to_package), now_s, lambda job: address(place, "job", job)),
        ),
    )


def feature_head(view: FeatureView) -> Html:
    """What a feature is called, where it stands, and its numbers."""
    card = view.card
    jobs = [bar for bar in view.bars if bar.kind == "agent"]
    checks = [one for phase in view.phases for one in phase.rounds]
    passed = sum(phase.status == "completed" for phase in view.phases)
    _, busy_s, _ = worked(view.bars)
    numbers = {
        "gates": f"{passed} of {len(view.phases)}",
        "sent back": str(sum(one.outcome.lower() != "passed" for one in checks)),
        "agent runs": str(len(jobs)),
        "time": duration(busy_s),
        "tokens": f"{view.spent.tokens:,}".replace(",", " ") if view.spent.tokens else "–",
        "cost": money(view.spent.cost_usd),
    }
    where = whereabouts(card.type, card.stage, card.base, card.merged) or join("into ", tag("code", card.base))
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in numbers.items()]
    begun = view.bars[0].started if view.bars else ""
    title = tag(
        "div",
        tag("p.mono quiet", f"{card.type} · {card.feature}"),
        tag("h1", card.description or card.feature),
        tag("p.quiet", pill(card.standing), " ", where, " · begun " if begun else "", clock(begun, with_day=True)),
    )
    return tag("div.head", title, tag("dl.numbers", *facts))


def _line(ts: str, text: str) -> Html:
    kind = (
        "is-good" if "PASSED" in text or "merged" in text else "is-bad" if "FAILED" in text or "BLOCKED" in text else ""
    )
    return tag("li", {"class": kind or None}, clock(ts), " ", text)


def decision(place: str, now: StandingView, seq: int, *, is_working: bool, with_link: bool = False) -> Html:
    """What a feature waits for, why, and the buttons for it; nothing where it has ended."""
    if now.standing == "ended":
        return Html("")
    orders = (
        ("stop",)
        if is_working
        else tuple(order for order in _ORDERS if order in now.orders and (order != "run" or now.standing == "stopped"))
    )
    title = {"working": "Agents are at work", "stopped": "Nobody is at work on this"}.get(now.standing, "Your decision")
    named = tag("a", {"href": address(place, "feature", now.feature)}, now.feature)
    why = now.reason or (
        f"In {now.phase}.{'' if is_working else ' Whatever was done counts; it goes on from there.'}"
        if now.standing != "waiting"
        else "Its last gate has passed. Nothing has been merged yet."
    )
    findings = (
        tag(
            "details",
            {"open": with_link, "id": f"findings-{seq}", "hx-morph-skip": True},
            tag("summary", "Findings"),
            tag("pre", now.findings),
        )
        if now.findings
        else None
    )
    box = f"said-{now.feature}"
    reason = join(
        tag("label", {"for": box}, "Reason, kept on record"),
        tag("textarea", {"name": "text", "id": box, "rows": 2, "hx-morph-skip": True}),
    )
    buttons = [_button(place, now, order, is_first=at == 0) for at, order in enumerate(orders)]
    if "back" in orders:
        phases = [tag("option", {"value": key}, key) for key in reversed(now.earlier)]
        which = tag("select", {"name": "phase", "aria-label": f"Earlier phase of {now.feature}"}, *phases)
        buttons.insert(orders.index("back") + 1, which)
    return tag(
        "section",
        {"class": f"decision is-{now.standing}", "aria-label": f"{title}: {now.feature}"},
        tag("h2", title, ": " if with_link else None, named if with_link else None),
        tag("p", why),
        tag("p", tag("b", "What to do: "), now.remediation) if now.remediation else None,
        findings,
        tag(
            "form",
            tag("input", {"type": "hidden", "name": "seq", "value": seq}),
            None if is_working else reason,
            *buttons,
        ),
    )


def _button(place: str, now: StandingView, order: str, *, is_first: bool) -> Html:
    names = {"base": now.base, "feature": now.feature}
    label, asked = (text.format(**names) for text in _ORDERS[order])
    return tag(
        "button",
        {
            "type": "button",
            "class": "primary" if is_first and order != "stop" else "danger" if order == "cancel" else None,
            "hx-post": address(place, "feature", now.feature, "order", order),
            "hx-include": "closest form",
            "hx-target": "#notice",
            "hx-confirm": asked or None,
            "title": "needs a reason" if order in NEED_TEXT else None,
        },
        label,
    )


def question_box(place: str, one: AgentQuestion) -> Html:
    """What an agent asks, with a box for the answer, and a button for each that it offers."""
    post = {"hx-post": address(place, "answer", one.id), "hx-target": "#notice"}
    offered = [
        tag("button", {"type": "button", "hx-vals": json.dumps({"text": option})}, post, option)
        for option in one.options
    ]
    box = f"answer-{one.id}"
    return tag(
        "section.decision is-waiting",
        {"aria-label": f"AgentQuestion {one.id}"},
        tag("h2", "An agent asks: ", tag("a", {"href": address(place, "job", one.job)}, one.work or one.feature)),
        tag("p", one.text),
        tag(
            "form",
            post,
            tag("label", {"for": box}, "Answer"),
            tag("textarea", {"name": "text", "id": box, "rows": 2, "hx-morph-skip": True}),
            *offered,
            tag("button.primary", {"type": "submit"}, "Answer"),
        ),
    )


def decisions_page(
    waiting: Sequence[tuple[str, StandingView, int]], asked: Sequence[tuple[str, AgentQuestion]]
) -> Html:
    """Everything that waits for a person, with its reasons."""
    boxes = [question_box(place, one) for place, one in asked]
    boxes += [decision(place, now, seq, is_working=False, with_link=True) for place, now, seq in waiting]
    nothing = tag("p.quiet", "Nothing waits for you.")
    return join(tag("h1", "Decisions"), *boxes, None if boxes else nothing)


# --- a package, a job ------------------------------------------------------------------------------------------------


def package_page(place: str, card: PackageCard, document: str) -> Html:
    """One package: where it stands, who worked on it, what it may change besides, and its plan."""
    base = address(place, "feature", card.feature, card.id)
    scope = tag(
        "form",
        {"hx-post": f"{base}/allow", "hx-target": "#notice", "class": "starting", "hx-morph-skip": True},
        tag("label", {"for": "path"}, "Path"),
        tag("input", {"name": "path", "id": "path", "required": True}),
        tag("label", {"for": "why"}, "Why"),
        tag("input", {"name": "text", "id": "why", "required": True}),
        tag(
            "button",
            {"type": "button", "hx-get": f"{base}/change", "hx-include": "closest form", "hx-target": "#change"},
            "Show the change",
        ),
        tag("button", {"type": "submit", "class": "primary"}, "Allow this path"),
        tag("div", {"id": "change"}),
    )
    blocked = tag("p.notice is-bad", card.reason, " ", card.remediation) if card.reason else None
    return join(
        tag("p.mono quiet", tag("a", {"href": address(place, "feature", card.feature)}, card.feature)),
        tag("h1", f"{card.id} {card.title}"),
        tag("p.quiet", pill(card.standing), f" {card.state} · round {card.round} · ", money(card.spent.cost_usd)),
        blocked,
        panel("Agents", jobs_table(place, card.jobs or ())),
        panel("Change and evidence", *(_part(f"{base}/part/{part}", part) for part in ("diff", "evidence"))),
        panel("Allow another path", tag("p.quiet", "A protected path is allowed as it is now, and no further."), scope),
        panel("Plan", tag("details", {"hx-morph-skip": True}, tag("summary", "Show the plan"), tag("pre", document))),
    )


def jobs_table(place: str, jobs: Iterable[Job]) -> Html:
    """Runs of agents, one a line."""
    rows = [
        tag(
            "tr",
            tag("td", clock(job.started, with_day=True)),
            tag("td", tag("a", {"href": address(place, "job", job.id)}, f"{job.phase} by {job.agent}")),
            tag("td", job.round),
            tag("td", job.outcome or "runs"),
            tag("td.right", duration(moment(job.ended) - moment(job.started)) if job.ended else ""),
            tag("td.right", f"{job.tokens:,}".replace(",", " ") if job.tokens else "–"),
            tag("td.right", money(job.cost_usd)),
        )
        for job in jobs
    ]
    return table(
        ("started", "who", "round", "outcome", "time", "tokens", "cost"), rows, "No agent has worked on it yet."
    )


def table(names: Sequence[str], rows: Sequence[Html], nothing: str) -> Html:
    """A table, or a sentence where there is nothing in it."""
    if not rows:
        return tag("p.quiet", nothing)
    head = tag("thead", tag("tr", *(tag("th", {"scope": "col"}, name) for name in names)))
    whole_table = tag("table", head, tag("tbody", *rows))
    return tag("div.scroll", {"tabindex": 0, "role": "region", "aria-label": "Table"}, whole_table)


def job_page(place: str, view: JobView) -> Html:
    """One run of an agent: what it printed, was told, changed and answered; what it claims beside what was seen."""
    row, base = view.row, address(place, "job", view.job)
    facts = _job_facts(row) if row else []
    claimed = [tag("tr", tag("th", {"scope": "row"}, name), tag("td", value)) for name, value in _claims(view.claimed)]
    falsely = [tag("li.is-bad", str(one)) for one in view.claimed_falsely]
    evidence = tag(
        "div.halves",
        panel(
            "What it claims", tag("table", tag("tbody", *claimed)) if claimed else tag("p.quiet", "Nothing."), *falsely
        ),
        panel(
            "What was seen",
            tag("pre", view.evidence) if view.evidence else tag("p.quiet", "No check ran in its round."),
        ),
    )
    title = f"{row.phase} by {row.agent}" if row else view.job
    about = " · ".join((row.wp or row.workflow_phase, f"round {row.round}")) if row else ""
    up = address(place, "feature", view.feature, *((row.wp,) if row and row.wp else ()))
    return join(
        tag("p.mono quiet", tag("a", {"href": up}, view.feature), f" · {view.job}"),
        tag("div.head", tag("div", tag("h1", title), tag("p.quiet", about)), tag("dl.numbers", *facts)),
        panel(
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
        panel(
            "Prompt, diff and answer",
            *(_part(f"{base}/part/{part}", part) for part in ("prompt", "diff", "answer")),
        ),
        evidence,
    )


def _job_facts(row: Job) -> list[Html]:
    numbers = {
        "outcome": row.outcome or "runs",
        "time": duration(moment(row.ended) - moment(row.started)) if row.ended else "",
        "read": f"{row.input_tokens:,}".replace(",", " ") if row.input_tokens else "–",
        "written": f"{row.output_tokens:,}".replace(",", " ") if row.output_tokens else "–",
        "cost": money(row.cost_usd),
    }
    return [tag("div", tag("dt", name), tag("dd", value)) for name, value in numbers.items() if value]


def _claims(claimed: object) -> Iterator[tuple[str, str]]:
    if isinstance(claimed, dict):
        for name, value in claimed.items():
            yield str(name), ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _part(path: str, name: str) -> Html:
    """Something long, fetched when it is wanted."""
    fetch = {"hx-get": path, "hx-trigger": "toggle once", "hx-target": f"#part-{name}", "hx-morph-skip": True}
    return tag("details", fetch, tag("summary", f"Show the {name}"), tag("div.part", {"id": f"part-{name}"}))


def text_part(text: str, *, is_diff: bool) -> Html:
    """A kept text; the lines of a diff are told apart."""
    return tag("pre", *(map(_diff_line, text.splitlines()) if is_diff else (text,)))


def _diff_line(line: str) -> Html:
    kind = (
        {"+": "added", "-": "removed", "@": "hunk", "d": "file"}.get(line[:1], "")
        if line[:3] not in ("+++", "---")
        else "file"
    )
    return tag("span", {"class": kind or None}, f"{line}\n")


def log_part(place: str, job: str, page: LogPage) -> Html:
    """What came since the last time, and who asks for more; the first part also leads to what was before it."""
    base = address(place, "job", job, "log")
    more = {"hx-get": f"{base}?from={page.end}", "hx-trigger": "every 1s", "hx-swap": "outerHTML"}
    return join(tag("pre", page.text) if page.text else None, None if page.is_over else tag("span.quiet", more, "…"))


def log_start(place: str, job: str, page: LogPage) -> Html:
    """The last page of a log, with a way to those before it."""
    return tag("div", earlier_log(place, job, page), log_part(place, job, page))


def earlier_log(place: str, job: str, page: LogPage) -> Html:
    """A button that puts the page before this one in its own place."""
    if not page.start:
        return Html("")
    fetch = {
        "hx-get": f"{address(place, 'job', job, 'log')}?before={page.start}",
        "hx-swap": "outerHTML",
        "hx-target": "this",
    }
    return tag("button", {"type": "button"}, fetch, f"Show what was before ({page.start:,} bytes)".replace(",", " "))


# --- over all features -----------------------------------------------------------------------------------------------


def timeline_page(
    rows: Sequence[Row], spent: Mapping[str, SpendingView], now_s: float, job_link: Mapping[str, str]
) -> Html:
    """All features on one axis, and what was spent by agent, role and day."""
    parts: list[Html] = [tag("h1", "Timeline"), panel("All features", gantt(rows, now_s, job_link.get))]
    for place, view in spent.items():
        groups = {"By feature": view.features, "By agent": view.agents, "By role": view.roles, "By day": view.days}
        named = f" in {place}" if len(spent) > 1 else ""
        parts.append(
            tag("div.halves", *(panel(f"{name}{named}", _spent_table(found)) for name, found in groups.items()))
        )
    return join(parts)


def _spent_table(found: Sequence[SpentBy]) -> Html:
    most = max((one.cost_usd or one.seconds for one in found), default=0.0)
    rows = []
    for one in found[:MOST_TILES]:
        share = (one.cost_usd or one.seconds) / most if most else 0.0
        meter = tag("meter", {"value": f"{share:.3f}", "min": 0, "max": 1, "aria-label": f"share of {one.name}"})
        cells = (one.runs, duration(one.seconds), f"{one.tokens:,}".replace(",", " "), money(one.cost_usd))
        rows.append(
            tag(
                "tr",
                tag("th", {"scope": "row"}, one.name),
                *(tag("td.right", cell) for cell in cells),
                tag("td", meter),
            )
        )
    return table(("", "runs", "time", "tokens", "cost", "share"), rows, "Nothing yet.")


def audit_page(place: str, places: Sequence[str], entries: Sequence[Recorded], feature: str) -> Html:
    """The chain of state changes, newest first, and its verification."""
    rows = [
        tag(
            "tr",
            tag("td.right mono", one.position),
            tag("td", clock(one.ts, with_day=True)),
            tag("td", tag("a", {"href": address(place, "feature", one.feature)}, one.feature) if one.feature else "–"),
            tag("td.mono", one.kind),
            tag("td.mono payload", one.payload.decode("utf-8", "replace")[:400]),
        )
        for one in entries
    ]
    query = {"at": place, "feature": feature}
    older = (
        tag("a", {"href": f"/audit?{urlencode({**query, 'before': entries[-1].position})}"}, "older entries")
        if len(entries) == MOST_ENTRIES
        else None
    )
    others = [
        tag(
            "a",
            {"href": f"/audit?{urlencode({'at': other})}", "aria-current": "page" if other == place else None},
            other,
            " ",
        )
        for other in places
    ]
    verify = {"class": "primary", "type": "button", "hx-post": address(place, "verify"), "hx-target": "#verified"}
    return join(
        tag("div.head", tag("h1", "Audit"), tag("button", verify, "Verify now")),
        tag("div", {"id": "verified", "role": "status", "hx-morph-skip": True}),
        tag("p", *others) if len(places) > 1 else None,
        panel(
            f"Entries of {feature}" if feature else "Entries",
            table(("entry", "when", "feature", "kind", "what"), rows, "Nothing is recorded yet."),
            older,
        ),
    )


def verified_part(report: AuditReport) -> Html:
    """Whether everything is as it was written."""
    if report.ok:
        return notice(f"Verified: {report.entries} entries, {report.trails} trails.", " ".join(report.notes))
    first = report.problems[0]
    return notice(f"NOT VERIFIED. {first.where}: {first.why}", f"{len(report.problems)} problems", is_bad=True)
