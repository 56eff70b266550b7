"""The page of a feature, and the decisions that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence

from phasegate.core.display.status import describe_merge
from phasegate.engine.drive.orders import ORDERS_NEEDING_TEXT
from phasegate.engine.journal.questions import AgentQuestion
from phasegate.engine.views.feature import FeatureStatusView, FeatureView
from phasegate.engine.views.overview import PackageCard, PendingDecision
from phasegate.interfaces.board.layout import build_path, format_cost, render_panel, render_standing
from phasegate.interfaces.html.markup import Html, join_html, tag
from phasegate.interfaces.html.svg import (
    build_feature_rows,
    format_duration,
    measure_work,
    render_gantt,
    render_package_graph,
    render_phase_rail,
    render_time,
)

MAX_EVENT_LINES = 40
# How a button is called, and what it asks before it is done
_ORDER_BUTTONS = {
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


def render_feature_page(
    repository: str,
    view: FeatureView,
    packages: Sequence[PackageCard],
    questions: Sequence[AgentQuestion],
    now_s: float,
) -> Html:
    """One feature: what it waits for, its phases, its packages, what happened, where the time went."""
    card = view.card

    def to_package(id_: str) -> str:
        return build_path(repository, "feature", card.feature, id_)

    lines = view.lines or ()
    happened = tag(
        "ol.lines",
        {"reversed": True, "tabindex": 0, "aria-label": "What happened, newest first"},
        *(_render_event_line(one.ts, one.line) for one in reversed(lines[-MAX_EVENT_LINES:])),
    )
    roles, _, share = measure_work(view.bars)
    legend = [
        tag("span", {"class": f"key role-{role}"}, f"{role} ", tag("b", format_duration(taken)))
        for role, taken in roles.items()
    ]
    no_packages = tag("p.quiet", "The plan has no work packages yet.")

    return join_html(
        render_feature_header(view),
        *(render_question(repository, one) for one in questions),
        render_decision(repository, view.now, view.seq, is_working=card.worker is not None),
        tag("section.panel", {"aria-label": "Phases and gates"}, render_phase_rail(view)),
        tag(
            "div.halves",
            render_panel(
                "Work packages",
                render_package_graph(packages, to_package) if packages else no_packages,
                aside="what waits for what",
            ),
            render_panel("What happened", happened, aside=f"{view.seq} entries, chained"),
        ),
        render_panel(
            "Where the time went",
            tag(
                "p.legend",
                f"agents worked {share:.0%} of it",
                *legend,
                tag("span.key between", "our checks"),
            ),
            render_gantt(
                build_feature_rows(view, to_package),
                now_s,
                lambda job: build_path(repository, "job", job),
            ),
        ),
    )


def render_feature_header(view: FeatureView) -> Html:
    """What a feature is called, where it stands, and its numbers."""
    card = view.card
    jobs = [bar for bar in view.bars if bar.kind == "agent"]
    checks = [one for phase in view.phases for one in phase.rounds]
    passed = sum(phase.status == "completed" for phase in view.phases)
    _, busy_s, _ = measure_work(view.bars)
    numbers = {
        "gates": f"{passed} of {len(view.phases)}",
        "sent back": str(sum(one.outcome.lower() != "passed" for one in checks)),
        "agent runs": str(len(jobs)),
        "time": format_duration(busy_s),
        "tokens": f"{view.spent.tokens:,}".replace(",", " ") if view.spent.tokens else "–",
        "cost": format_cost(view.spent.cost_usd),
    }

    where = describe_merge(card.type, card.stage, card.base, card.merged) or join_html(
        "into ", tag("code", card.base)
    )
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in numbers.items()]
    begun = view.bars[0].started if view.bars else ""
    title = tag(
        "div",
        tag("p.mono quiet", f"{card.type} · {card.feature}"),
        tag("h1", card.description or card.feature),
        tag(
            "p.quiet",
            render_standing(card.standing),
            " ",
            where,
            " · begun " if begun else "",
            render_time(begun, with_day=True),
        ),
    )

    return tag("div.head", title, tag("dl.numbers", *facts))


def _render_event_line(ts: str, text: str) -> Html:
    if "PASSED" in text or "merged" in text:
        kind = "is-good"
    elif "FAILED" in text or "BLOCKED" in text:
        kind = "is-bad"
    else:
        kind = ""

    return tag("li", {"class": kind or None}, render_time(ts), " ", text)


def render_decision(
    repository: str,
    standing: FeatureStatusView,
    seq: int,
    *,
    is_working: bool,
    with_link: bool = False,
) -> Html:
    """What a feature waits for, why, and the buttons for it; nothing where it has ended."""
    if standing.standing == "ended":
        return Html("")

    orders = (
        ("stop",)
        if is_working
        else tuple(
            order
            for order in _ORDER_BUTTONS
            if order in standing.orders and (order != "run" or standing.standing == "stopped")
        )
    )

    title = {"working": "Agents are at work", "stopped": "Nobody is at work on this"}.get(
        standing.standing, "Your decision"
    )
    named = tag(
        "a", {"href": build_path(repository, "feature", standing.feature)}, standing.feature
    )
    why = standing.reason or (
        f"In {standing.phase}.{'' if is_working else ' Whatever was done counts; it goes on from there.'}"
        if standing.standing != "waiting"
        else "Its last gate has passed. Nothing has been merged yet."
    )

    if standing.findings:
        findings = tag(
            "details",
            {"open": with_link, "id": f"findings-{seq}", "hx-morph-skip": True},
            tag("summary", "Findings"),
            tag("pre", standing.findings),
        )
    else:
        findings = None

    box = f"said-{standing.feature}"
    reason = join_html(
        tag("label", {"for": box}, "Reason, kept on record"),
        tag("textarea", {"name": "text", "id": box, "rows": 2, "hx-morph-skip": True}),
    )
    buttons = [
        _render_order_button(repository, standing, order, is_first=at == 0)
        for at, order in enumerate(orders)
    ]

    if "back" in orders:
        phases = [tag("option", {"value": key}, key) for key in reversed(standing.earlier)]
        which = tag(
            "select",
            {"name": "phase", "aria-label": f"Earlier phase of {standing.feature}"},
            *phases,
        )
        buttons.insert(orders.index("back") + 1, which)

    return tag(
        "section",
        {"class": f"decision is-{standing.standing}", "aria-label": f"{title}: {standing.feature}"},
        tag("h2", title, ": " if with_link else None, named if with_link else None),
        tag("p", why),
        tag("p", tag("b", "What to do: "), standing.remediation) if standing.remediation else None,
        findings,
        tag(
            "form",
            tag("input", {"type": "hidden", "name": "seq", "value": seq}),
            None if is_working else reason,
            *buttons,
        ),
    )


def _render_order_button(
    repository: str, standing: FeatureStatusView, order: str, *, is_first: bool
) -> Html:
    names = {"base": standing.base, "feature": standing.feature}
    label, asked = (text.format(**names) for text in _ORDER_BUTTONS[order])
    return tag(
        "button",
        {
            # Its own, so that the page does not turn it into another button: one whose order is
            # still on its way would take no click.
            "id": f"{order}-{repository}-{standing.feature}",
            "type": "button",
            "class": "primary"
            if is_first and order != "stop"
            else "danger"
            if order == "cancel"
            else None,
            "hx-post": build_path(repository, "feature", standing.feature, "order", order),
            "hx-include": "closest form",
            "hx-target": "#notice",
            "hx-confirm": asked or None,
            "title": "needs a reason" if order in ORDERS_NEEDING_TEXT else None,
        },
        label,
    )


def render_question(repository: str, question: AgentQuestion) -> Html:
    """What an agent asks, with a box for the answer, and a button for each that it offers."""
    post = {"hx-post": build_path(repository, "answer", question.id), "hx-target": "#notice"}
    offered = [
        tag("button", {"type": "button", "hx-vals": json.dumps({"text": option})}, post, option)
        for option in question.options
    ]
    box = f"answer-{question.id}"

    return tag(
        "section.decision is-waiting",
        {"aria-label": f"Question {question.id}"},
        tag(
            "h2",
            "An agent asks: ",
            tag(
                "a",
                {"href": build_path(repository, "job", question.job)},
                question.work or question.feature,
            ),
        ),
        tag("p", question.text),
        tag(
            "form",
            post,
            tag("label", {"for": box}, "Answer"),
            tag("textarea", {"name": "text", "id": box, "rows": 2, "hx-morph-skip": True}),
            *offered,
            tag("button.primary", {"type": "submit"}, "Answer"),
        ),
    )


def render_stuck_package(repository: str, blocked: PendingDecision) -> Html:
    """A package that was dispatched by hand and is blocked.

    Why, and what to type when that is mended.
    """
    href = build_path(repository, "feature", blocked.feature, blocked.package)
    return tag(
        "section.decision is-waiting",
        {"aria-label": f"Blocked: {blocked.package} of {blocked.feature}"},
        tag("h2", "Blocked: ", tag("a", {"href": href}, f"{blocked.package} of {blocked.feature}")),
        tag("p", blocked.reason),
        tag("p", tag("b", "What to do: "), blocked.remediation) if blocked.remediation else None,
        tag(
            "p",
            "Then: ",
            tag("code", f"phasegate dispatch {blocked.package} --feature {blocked.feature}"),
        ),
    )


def render_decisions_page(
    waiting: Sequence[tuple[str, FeatureStatusView, int]],
    questions: Sequence[tuple[str, AgentQuestion]],
    stuck_packages: Sequence[tuple[str, PendingDecision]],
) -> Html:
    """Everything that waits for a person, with its reasons."""
    boxes = [render_question(place, one) for place, one in questions]
    boxes += [
        render_decision(place, now, seq, is_working=False, with_link=True)
        for place, now, seq in waiting
    ]
    boxes += [render_stuck_package(place, one) for place, one in stuck_packages]
    nothing = tag("p.quiet", "Nothing waits for you.")

    return join_html(tag("h1", "Decisions"), *boxes, None if boxes else nothing)
