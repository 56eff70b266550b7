"""The page of a feature, and the decisions that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence

from phasegate.core.display.status import whereabouts
from phasegate.engine.drive.orders import NEED_TEXT
from phasegate.engine.journal.questions import AgentQuestion
from phasegate.engine.views.feature import FeatureView, StandingView
from phasegate.engine.views.overview import Decision, PackageCard
from phasegate.interfaces.board.layout import address, money, panel, pill
from phasegate.interfaces.html.markup import Html, join, tag
from phasegate.interfaces.html.svg import clock, duration, feature_rows, gantt, graph, rail, worked

MOST_LINES = 40
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
            # Its own, so that the page does not turn it into another button: one whose order is still on its way
            # would take no click.
            "id": f"{order}-{place}-{now.feature}",
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
        {"aria-label": f"Question {one.id}"},
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


def stuck_box(place: str, one: Decision) -> Html:
    """A package that was dispatched by hand and is blocked: why, and what to type when that is mended."""
    href = address(place, "feature", one.feature, one.package)
    return tag(
        "section.decision is-waiting",
        {"aria-label": f"Blocked: {one.package} of {one.feature}"},
        tag("h2", "Blocked: ", tag("a", {"href": href}, f"{one.package} of {one.feature}")),
        tag("p", one.reason),
        tag("p", tag("b", "What to do: "), one.remediation) if one.remediation else None,
        tag("p", "Then: ", tag("code", f"phasegate dispatch {one.package} --feature {one.feature}")),
    )


def decisions_page(
    waiting: Sequence[tuple[str, StandingView, int]],
    asked: Sequence[tuple[str, AgentQuestion]],
    stuck: Sequence[tuple[str, Decision]],
) -> Html:
    """Everything that waits for a person, with its reasons."""
    boxes = [question_box(place, one) for place, one in asked]
    boxes += [decision(place, now, seq, is_working=False, with_link=True) for place, now, seq in waiting]
    boxes += [stuck_box(place, one) for place, one in stuck]
    nothing = tag("p.quiet", "Nothing waits for you.")
    return join(tag("h1", "Decisions"), *boxes, None if boxes else nothing)
