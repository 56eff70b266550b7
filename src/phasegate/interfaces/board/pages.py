"""Values that the board's pages show, built from the engine's views."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from phasegate.core.workflow.orders import ORDERS
from phasegate.engine.views.feature import FeatureStatusView, FeatureView
from phasegate.engine.views.overview import PackageCard
from phasegate.engine.views.spending import FeatureTile, SpendingView, SpentBy
from phasegate.interfaces.html.environment import build_path
from phasegate.interfaces.html.feature import FeaturePage, build_feature_page

MAX_TILES = 20
MAX_EVENT_LINES = 40
# Label of each order's button, and the question before the order is given
_ORDER_BUTTONS = {
    "complete": ("Merge into {base}", "Archive {feature} and merge it into {base}?"),
    "resolve": ("Send back with this answer", ""),
    "advance": ("Next phase", ""),
    "retry": ("Retry phase", ""),
    "run": ("Continue", ""),
    "stop": ("Stop the run", "Stop the run of {feature}? Changes made so far are saved."),
    "escalate": ("Pause", ""),
    "back": (
        "Back to",
        "Return {feature} to an earlier phase? Its gates from there on must pass again.",
    ),
    "cancel": ("Abandon feature", "Cancel {feature} without merging? Its branches are kept."),
}


class PageShell(NamedTuple):
    """Values for the frame of a page."""

    # with its query
    path: str
    page_secret: str
    # names of all repositories on the board
    repositories: Sequence[str]
    # the repository and the feature that the page is about
    repository: str = ""
    feature: str = ""
    waiting_count: int = 0


class OrderButton(NamedTuple):
    """A button that gives an order."""

    order: str
    label: str
    # Question before the order is executed; empty if none is needed
    question: str
    needs_text: bool
    # What the order does, in words
    effect: str = ""


class Decision(NamedTuple):
    """What a feature waits for, why, and the orders that the user can give."""

    repository: str
    status: FeatureStatusView
    # last event of the feature that the page shows
    seq: int
    reason: str
    buttons: list[OrderButton]
    is_working: bool
    # with a link to the feature, on the page of all decisions
    with_link: bool
    # Time of the last recorded event
    since: str = ""
    # The page shows refused changes with their own buttons
    has_refused: bool = False
    # Changes, tests, requirements and cost, before a merge
    summary: tuple[str, ...] = ()


def build_decision(
    repository: str,
    status: FeatureStatusView,
    seq: int,
    *,
    is_working: bool = False,
    with_link: bool = False,
    since: str = "",
    has_refused: bool = False,
    summary: tuple[str, ...] = (),
) -> Decision | None:
    """Return the decision box of a feature, or None if the feature has ended."""
    if status.standing == "ended":
        return None

    if is_working:
        orders = ["stop"]
    else:
        orders = [order for order in _ORDER_BUTTONS if order in status.orders]
        if status.standing != "stopped" and "run" in orders:
            orders.remove("run")

    names = {"base": status.base, "feature": status.feature}
    buttons = []
    for order in orders:
        label, question = (text.format(**names) for text in _ORDER_BUTTONS[order])
        known = ORDERS.get(order)
        buttons.append(
            OrderButton(
                order=order,
                label=label,
                question=question,
                needs_text=known is not None and known.needs_text,
                effect=known.effect if known else "",
            )
        )

    return Decision(
        repository=repository,
        status=status,
        seq=seq,
        reason=status.reason or _describe_standing(status, is_working=is_working),
        buttons=buttons,
        is_working=is_working,
        with_link=with_link,
        since=since,
        has_refused=has_refused,
        summary=summary,
    )


def _describe_standing(status: FeatureStatusView, *, is_working: bool) -> str:
    if status.standing == "waiting":
        return "The last gate has passed. Nothing has been merged yet."
    if is_working:
        return f"In {status.phase}."
    return f"In {status.phase}. The next run continues from there."


def build_board_feature(
    repository: str, view: FeatureView, packages: Sequence[PackageCard], now_s: float
) -> FeaturePage:
    """Collect the data for the page of a feature, with links to its packages and jobs."""
    return build_feature_page(
        view,
        packages,
        now_s,
        build_package_link=lambda id_: build_path(repository, "feature", view.card.feature, id_),
        build_job_link=lambda job: build_path(repository, "job", job),
    )


def group_tiles(
    tiles: Mapping[str, Sequence[FeatureTile]],
    page: int,
    waiting: Collection[tuple[str, str]],
    query: str,
    state: str = "",
) -> dict[str, object]:
    """Group all features by whether they wait for the user; each group is paginated.

    `query` selects the features whose name or description contains it, `state` one group.
    """
    wanted = query.casefold().strip()
    features = [
        (repository, tile)
        for repository, found in tiles.items()
        for tile in found
        if wanted in f"{tile.card.feature} {tile.card.description}".casefold()
    ]
    groups: dict[str, list[tuple[str, FeatureTile]]] = {
        "Waiting for you": [],
        "In progress": [],
        "Stopped": [],
        "Ended": [],
    }
    names = {"working": "In progress", "ended": "Ended"}
    for repository, tile in features:
        if (repository, tile.card.feature) in waiting:
            name = "Waiting for you"
        else:
            name = names.get(tile.card.standing, "Stopped")
        groups[name].append((repository, tile))

    last = page * MAX_TILES
    shown = {name: found for name, found in groups.items() if state in ("", name)}
    pages = {name: found[last - MAX_TILES : last] for name, found in shown.items()}
    return {
        "total": len(features),
        "waiting_total": len(groups["Waiting for you"]),
        "groups": {name: found for name, found in shown.items() if pages[name]},
        "group_names": [*groups],
        "pages": pages,
        "next_page": page + 1 if any(len(found) > last for found in shown.values()) else 0,
        "repositories": [*tiles],
        "query": query,
        "state": state,
    }


def group_spending(view: SpendingView) -> dict[str, list[tuple[SpentBy, float]]]:
    """Return the rows of each spending table with their share of the largest row."""
    tables = {
        "By feature": view.features,
        "By agent": view.agents,
        "By role": view.roles,
        "By day": view.days,
    }
    return {name: _add_shares(rows) for name, rows in tables.items()}


def _add_shares(rows: Sequence[SpentBy]) -> list[tuple[SpentBy, float]]:
    # All rows in one unit: agents that report no cost are compared by time only among themselves
    amounts = [row.cost_usd for row in rows]
    if not any(amounts):
        amounts = [row.seconds for row in rows]

    largest = max(amounts, default=0.0) or 1.0
    shares = [amount / largest for amount in amounts]
    return list(zip(rows, shares, strict=True))[:MAX_TILES]
