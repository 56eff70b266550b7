"""The board's pages: the buttons of a decision, and features in groups."""

from __future__ import annotations

import pytest

from phasegate.core.display.status import FeatureCard
from phasegate.engine.views.feature import FeatureStatusView
from phasegate.engine.views.spending import FeatureTile, SpendingView, SpentBy
from phasegate.interfaces.board.pages import (
    MAX_TILES,
    build_decision,
    group_spending,
    group_tiles,
)


def status(standing: str, *orders: str, reason: str = "") -> FeatureStatusView:
    return FeatureStatusView(
        feature="001-a",
        type="feature",
        phase="06-implementation",
        stage="",
        standing=standing,
        round=1,
        reason=reason,
        findings="",
        remediation="",
        branch="feat/001-a",
        base="main",
        packages={},
        orders=orders,
        earlier=(),
    )


def tile(slug: str, standing: str) -> FeatureTile:
    return FeatureTile(FeatureCard(slug, standing=standing), "", SpentBy(slug), ())


@pytest.mark.parametrize(
    ("standing", "is_working", "buttons"),
    [
        ("working", True, ["stop"]),
        ("stopped", False, ["retry", "run", "cancel"]),
        ("waiting", False, ["retry", "cancel"]),
    ],
)
def test_only_orders_that_are_allowed_now_have_a_button(
    standing: str, is_working: bool, buttons: list[str]
) -> None:
    found = build_decision(
        "r", status(standing, "run", "cancel", "retry"), 7, is_working=is_working
    )
    assert found is not None
    assert [button.order for button in found.buttons] == buttons


def test_an_ended_feature_needs_no_decision() -> None:
    assert build_decision("r", status("ended", "run"), 7) is None


def test_a_merge_asks_first_and_names_its_base() -> None:
    found = build_decision("r", status("waiting", "complete", "resolve"), 7)
    assert found is not None
    merge, resolve = found.buttons
    assert merge.label == "Merge into main"
    assert merge.question == "Archive 001-a and merge it into main?"
    assert (merge.needs_text, resolve.needs_text) == (False, True)


def test_a_recorded_reason_is_shown_before_a_description() -> None:
    reasons = [
        found.reason
        for text in ("no key", "")
        if (found := build_decision("r", status("waiting", reason=text), 7))
    ]
    assert reasons == ["no key", "The last gate has passed. Nothing has been merged yet."]


def test_every_feature_is_in_one_group_and_ended_ones_come_page_by_page() -> None:
    ended = [tile(f"{number:03}-e", "ended") for number in range(MAX_TILES + 1)]
    others = [tile("a", "working"), tile("b", "stopped"), tile("c", "waiting"), tile("d", "")]
    # A running feature with an open question waits; a stopped one does not.
    waiting = {("r", "a"), ("r", "c")}
    first = group_tiles({"r": [*others, *ended]}, 1, waiting, "")
    groups = first["groups"]
    assert isinstance(groups, dict)
    names = {name: [one.card.feature for _, one in found] for name, found in groups.items()}
    assert names["Waiting for you"] == ["a", "c"]
    assert names["Stopped"] == ["b", "d"]
    assert (first["total"], first["next_page"]) == (MAX_TILES + 5, 2)
    assert isinstance(first["pages"], dict)
    assert first["pages"]["Ended"] == [("r", one) for one in ended[:MAX_TILES]]
    last = group_tiles({"r": ended}, 2, (), "")
    assert isinstance(last["pages"], dict)
    assert (last["pages"]["Ended"], last["next_page"]) == ([("r", ended[-1])], 0)
    assert group_tiles({"r": ended}, 1, (), "003-E")["total"] == 1


def test_the_largest_row_of_a_table_has_the_whole_width() -> None:
    rows = (SpentBy("a", cost_usd=4.0), SpentBy("b", cost_usd=1.0))
    tables = group_spending(SpendingView(rows, (SpentBy("c"),), (), ()))
    assert [share for _, share in tables["By feature"]] == [1.0, 0.25]
    assert [share for _, share in tables["By agent"]] == [0.0]
    assert tables["By role"] == []


def test_rows_of_a_table_are_compared_by_cost_or_else_by_time() -> None:
    mixed = (SpentBy("a", cost_usd=4.0, seconds=10), SpentBy("b", seconds=8000))
    timed = (SpentBy("c", seconds=50), SpentBy("d", seconds=100))
    tables = group_spending(SpendingView(mixed, timed, (), ()))
    assert [share for _, share in tables["By feature"]] == [1.0, 0.0]
    assert [share for _, share in tables["By agent"]] == [0.5, 1.0]
