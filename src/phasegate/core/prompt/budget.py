"""What goes into a prompt of limited size: which items whole, which cut, which not at all.

Nothing silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from phasegate.core.prompt.document import ContextItem, ItemType, render_element
from phasegate.core.prompt.hidden_characters import quote_name
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.core.text.xml import encode_forbidden, escape_text, is_xml_safe

# Less than this of an item helps nobody
MIN_CUT_TOKENS = 200
RESERVE_DIVISOR = (
    # A quarter of the room is kept for what changes, so that the rest stays the same from round to
    # round
    4
)


class _PieceTraits(NamedTuple):
    priority: int
    position: int
    item_type: ItemType
    is_volatile: bool


class PieceKind(Enum):
    """What a piece of context is.

    Priority: who gets room first. Place: where it stands; what changes comes last.
    """

    # The agent file of the phase
    ROLE = _PieceTraits(4, 1, ItemType.ARTIFACT, False)
    FILE = _PieceTraits(6, 2, ItemType.FILE, False)
    # A document of an earlier phase
    ARTIFACT = _PieceTraits(5, 3, ItemType.ARTIFACT, False)
    THOUGHT = _PieceTraits(7, 4, ItemType.THOUGHT, False)
    # A document of this phase, which rounds revise
    REVISED = _PieceTraits(3, 5, ItemType.ARTIFACT, True)
    TASKS = _PieceTraits(2, 6, ItemType.ARTIFACT, True)
    FINDINGS = _PieceTraits(1, 7, ItemType.ARTIFACT, True)


class ContextPiece(NamedTuple):
    """Something that is offered. `unread_bytes`: how much of a large file was not even read."""

    kind: PieceKind
    name: str | None
    content: str
    unread_bytes: int = 0

    @property
    def item(self) -> ContextItem:
        return ContextItem(self.kind.value.item_type, self.name, self.content)


class Truncation(NamedTuple):
    """A piece of which only the head went in."""

    name: str
    shown_bytes: int
    total_bytes: int


class ShortenedText(NamedTuple):
    text: str
    cut: Truncation


class FittedContext(NamedTuple):
    """The items in their order, and what is not in them."""

    items: tuple[ContextItem, ...]
    cut: tuple[Truncation, ...]
    left_out: tuple[str, ...]
    tokens: int


class _KeptPiece(NamedTuple):
    position: int
    item: ContextItem
    tokens: int
    cut: Truncation | None


def estimate_item_tokens(item: ContextItem) -> int:
    """What an item costs as it will be sent: with its tags and entities."""
    return estimate_tokens(render_element(item.type, item.content, item.name))


def get_display_name(piece: ContextPiece) -> str:
    if piece.name is None:
        return piece.kind.value.item_type
    return piece.name


def fit_context(
    pieces: Sequence[ContextPiece], max_tokens: int | None, marker: str
) -> FittedContext:
    """Fit the pieces into the room by their priorities; `marker` is put where one is cut.

    Without a room, all fit.

    If all fit, all go in. Else what changes between rounds goes first, and the rest shares what is
    left of the room, or of three quarters of it: so it is cut in the same place in the next round,
    and prompt caches still hit.
    """
    costs = [estimate_item_tokens(piece.item) for piece in pieces]

    if max_tokens is None or (
        sum(costs) <= max_tokens and not any(piece.unread_bytes for piece in pieces)
    ):
        kept = [
            _KeptPiece(index, piece.item, costs[index], None) for index, piece in enumerate(pieces)
        ]
    else:
        kept = _fit_by_priority(pieces, costs, max_tokens, marker)

    return _order_kept(pieces, kept)


def _fit_by_priority(
    pieces: Sequence[ContextPiece], costs: Sequence[int], room: int, marker: str
) -> list[_KeptPiece]:
    ranked = sorted(
        range(len(pieces)), key=lambda index: (pieces[index].kind.value.priority, index)
    )
    changing = [index for index in ranked if pieces[index].kind.value.is_volatile]
    lasting = [index for index in ranked if not pieces[index].kind.value.is_volatile]
    first = _place_pieces(pieces, costs, changing, room, marker)
    used = sum(kept.tokens for kept in first)
    if changing:
        kept_free = max(used, room // RESERVE_DIVISOR)
    else:
        kept_free = 0

    return first + _place_pieces(pieces, costs, lasting, room - kept_free, marker)


def _place_pieces(
    pieces: Sequence[ContextPiece],
    costs: Sequence[int],
    ranked: Sequence[int],
    room: int,
    marker: str,
) -> list[_KeptPiece]:
    kept: list[_KeptPiece] = []
    wanted = sum(costs[index] for index in ranked)

    for index in ranked:
        wanted -= costs[index]
        if costs[index] <= room and not pieces[index].unread_bytes:
            found: _KeptPiece | None = _KeptPiece(index, pieces[index].item, costs[index], None)
        else:
            # A piece that is cut leaves the others what they need, or half of the room
            found = _shorten_piece(
                index, pieces[index], min(room, max(room - wanted, room // 2)), marker
            )

        if found:
            kept.append(found)
            room -= found.tokens

    return kept


def _shorten_piece(position: int, piece: ContextPiece, room: int, marker: str) -> _KeptPiece | None:
    frame = estimate_item_tokens(ContextItem(piece.kind.value.item_type, piece.name))
    short = shorten_text(
        get_display_name(piece), piece.content, piece.unread_bytes, room - frame, marker
    )
    if short is None:
        return None

    item = ContextItem(piece.kind.value.item_type, piece.name, short.text)
    return _KeptPiece(position, item, estimate_item_tokens(item), short.cut)


def shorten_text(
    name: str, text: str, unread_bytes: int, max_tokens: int, marker: str
) -> ShortenedText | None:
    """The head of a text with the marker behind it, within the room.

    None if too little would be left to be of use.
    """
    total = _count_bytes(text) + unread_bytes
    room = max_tokens - _estimate_rendered_tokens(
        marker.format(name=quote_name(name), shown=total, total=total, line=total), False
    )
    if room >= MIN_CUT_TOKENS:
        head = _take_head(text, room)
    else:
        head = ""

    if not head:
        return None

    shown = _count_bytes(head)
    note = marker.format(name=quote_name(name), shown=shown, total=total, line=head.count("\n"))

    return ShortenedText(head + note, Truncation(name, shown, total))


def _count_bytes(text: str) -> int:
    """How many bytes the text has on the disk, where an invalid byte came to us as one surrogate."""
    try:
        return len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(text.encode("utf-8", "surrogatepass"))


def _take_head(text: str, room: int) -> str:
    """As many whole lines as fit; of a first line that does not fit, its start."""
    plain = is_xml_safe(text)
    end = 0

    while end < len(text):
        stop = text.find("\n", end) + 1 or len(text)
        cost = _estimate_rendered_tokens(text[end:stop], plain)
        if cost > room:
            break

        room -= cost
        end = stop

    if end:
        return text[:end]

    return _take_line_start(text[: text.find("\n") + 1 or len(text)], room, plain)


def _take_line_start(line: str, room: int, plain: bool) -> str:
    length = min(len(line), room * 16)
    while length and (cost := _estimate_rendered_tokens(line[:length], plain)) >= room:
        length = min(length * room // (cost + 1), length - 1)
    return line[:length]


def _estimate_rendered_tokens(text: str, plain: bool) -> int:
    return estimate_tokens(escape_text(text if plain else encode_forbidden(text)))


def _order_kept(pieces: Sequence[ContextPiece], kept: Iterable[_KeptPiece]) -> FittedContext:
    ordered = sorted(kept, key=lambda one: (pieces[one.position].kind.value.position, one.position))
    present = {one.position for one in ordered}
    left_out = tuple(
        get_display_name(piece) for index, piece in enumerate(pieces) if index not in present
    )
    cut = tuple(one.cut for one in ordered if one.cut)

    return FittedContext(
        tuple(one.item for one in ordered), cut, left_out, sum(one.tokens for one in ordered)
    )
