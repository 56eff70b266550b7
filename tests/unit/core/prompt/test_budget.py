"""What goes into a prompt of limited size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.prompt.budget import (
    ContextPiece,
    FittedContext,
    PieceKind,
    estimate_item_tokens,
    fit_context,
    shorten_text,
)
from support import any_text

MARKER = "\n[cut after line {line}: {shown} of {total} bytes of {name}]\n"
LINE = "a line of some words\n"


def piece(kind: PieceKind, name: str, lines: int) -> ContextPiece:
    return ContextPiece(kind, name, LINE * lines)


def names(fitted: FittedContext) -> list[str | None]:
    return [item.name for item in fitted.items]


@pytest.mark.demand("P3.c", "P3.b", "P4.a")
def test_when_all_fit_all_go_in_and_what_changes_comes_last() -> None:
    pieces = [
        piece(kind, kind.name, 2)
        for kind in (PieceKind.FINDINGS, PieceKind.THOUGHT, PieceKind.TASKS, PieceKind.ARTIFACT)
    ]
    pieces += [
        piece(kind, kind.name, 2) for kind in (PieceKind.REVISED, PieceKind.FILE, PieceKind.ROLE)
    ]
    fitted = fit_context(pieces, 10_000, MARKER)
    assert names(fitted) == ["ARTIFACT", "ROLE", "FILE", "THOUGHT", "REVISED", "TASKS", "FINDINGS"]
    assert (fitted.cut, fitted.left_out) == ((), ())


@pytest.mark.demand("P4.a")
def test_findings_tasks_and_revised_documents_come_before_files() -> None:
    important = [
        piece(kind, kind.name, 10)
        for kind in (PieceKind.FINDINGS, PieceKind.TASKS, PieceKind.REVISED)
    ]
    files = [piece(PieceKind.FILE, f"file{number}", 200) for number in range(5)]
    cost = sum(estimate_item_tokens(one.item) for one in important)
    fitted = fit_context([*files, *important], cost + 50, MARKER)
    assert names(fitted) == ["REVISED", "TASKS", "FINDINGS"]
    assert fitted.left_out == tuple(f"file{number}" for number in range(5))


@pytest.mark.demand("P4.a")
def test_the_stated_order_of_priorities() -> None:
    ranked = sorted(PieceKind, key=lambda kind: kind.value.priority)
    assert [kind.name for kind in ranked] == [
        "FINDINGS",
        "TASKS",
        "REVISED",
        "ROLE",
        "ARTIFACT",
        "FILE",
        "THOUGHT",
    ]


@pytest.mark.demand("P4.b")
def test_a_piece_that_is_cut_says_so_at_the_place_of_the_cut() -> None:
    fitted = fit_context([piece(PieceKind.FILE, "big.py", 1_000)], 1_500, MARKER)
    [item] = fitted.items
    [cut] = fitted.cut
    head, _, note = item.content.partition("\n[cut")
    assert (head + "\n").count(LINE) * len(LINE) == cut.shown_bytes
    assert f"{cut.shown_bytes} of {1_000 * len(LINE)} bytes of big.py]" in note
    assert estimate_item_tokens(item) == fitted.tokens <= 1_500


@pytest.mark.demand("P4.a")
def test_one_giant_leaves_room_for_the_others() -> None:
    pieces = [piece(PieceKind.FILE, "giant", 100_000), piece(PieceKind.FILE, "small", 5)]
    fitted = fit_context(pieces, 4_000, MARKER)
    assert names(fitted) == ["giant", "small"]
    assert [cut.name for cut in fitted.cut] == ["giant"]


@pytest.mark.demand("P4.b")
def test_a_single_line_without_end_is_cut_inside_the_line() -> None:
    fitted = fit_context([ContextPiece(PieceKind.FILE, "min.js", "x=1;" * 100_000)], 1_000, MARKER)
    assert 300 < fitted.tokens <= 1_000
    assert fitted.cut[0].shown_bytes > 100


@pytest.mark.demand("P4.b")
def test_what_was_never_read_counts_as_cut_or_left_out() -> None:
    half = ContextPiece(PieceKind.FILE, "half", LINE * 20, unread_bytes=1_000_000)
    unread = ContextPiece(PieceKind.FILE, "unread", "", unread_bytes=5)
    fitted = fit_context([half, unread], 10_000, MARKER)
    assert [(cut.name, cut.total_bytes) for cut in fitted.cut] == [
        ("half", 1_000_000 + 20 * len(LINE))
    ]
    assert fitted.left_out == ("unread",)


@pytest.mark.demand("P3.b")
def test_while_the_changing_part_grows_the_lasting_part_is_cut_in_the_same_place() -> None:
    files = [piece(PieceKind.FILE, f"file{number}", 40) for number in range(20)]
    rounds = [
        fit_context([*files, piece(PieceKind.FINDINGS, "findings", size)], 5_000, MARKER)
        for size in (0, 5, 40)
    ]
    lasting = [[item for item in fitted.items if item.name != "findings"] for fitted in rounds]
    assert rounds[0].left_out
    assert lasting[0] == lasting[1] == lasting[2]


@pytest.mark.demand("P4.a")
def test_without_a_limit_everything_goes_in() -> None:
    assert fit_context([piece(PieceKind.FILE, "big", 10_000)], None, MARKER).cut == ()


def test_too_little_of_a_text_is_not_worth_showing() -> None:
    assert shorten_text("x", LINE * 100, 0, 100, MARKER) is None


pieces = st.builds(
    ContextPiece,
    st.sampled_from(PieceKind),
    st.none() | any_text.text,
    any_text.text,
    st.sampled_from([0, 0, 9]),
)


@pytest.mark.demand("P4.a", "P4.c")
@given(st.lists(pieces, max_size=6), st.integers(0, 3_000), st.integers(1, 400))
def test_the_room_is_kept_and_nothing_is_lost_silently(
    offered: list[ContextPiece], room: int, times: int
) -> None:
    offered = [one._replace(content=one.content * times) for one in offered]
    fitted = fit_context(offered, room, MARKER)
    assert sum(map(estimate_item_tokens, fitted.items)) == fitted.tokens <= room
    assert len(fitted.items) + len(fitted.left_out) == len(offered)
    whole = [item for item in fitted.items if "[cut after line" not in item.content]
    assert len(whole) + len(fitted.cut) == len(fitted.items)
    assert all(item in [one.item for one in offered] for item in whole)
