"""What goes into a prompt of limited size: which items whole, which cut, which not at all. Nothing silently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from phasegate.core.prompt.document import ContextItem, ItemType, element
from phasegate.core.prompt.hidden_characters import shown_name
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.core.text.xml import carries, escape, spell

MIN_CUT_TOKENS = 200  # less than this of an item helps nobody
RESERVE = 4  # a quarter of the room is kept for what changes, so that the rest stays the same from round to round


class _Traits(NamedTuple):
    priority: int
    place: int
    item_type: ItemType
    changes: bool


class PieceKind(Enum):
    """What a piece of context is. Priority: who gets room first. Place: where it stands; what changes comes last."""

    ROLE = _Traits(4, 1, ItemType.ARTIFACT, False)  # the agent file of the phase
    FILE = _Traits(6, 2, ItemType.FILE, False)
    ARTIFACT = _Traits(5, 3, ItemType.ARTIFACT, False)  # a document of an earlier phase
    THOUGHT = _Traits(7, 4, ItemType.THOUGHT, False)
    REVISED = _Traits(3, 5, ItemType.ARTIFACT, True)  # a document of this phase, which rounds revise
    TASKS = _Traits(2, 6, ItemType.ARTIFACT, True)
    FINDINGS = _Traits(1, 7, ItemType.ARTIFACT, True)


class Piece(NamedTuple):
    """Something that is offered. `unread_bytes`: how much of a large file was not even read."""

    kind: PieceKind
    name: str | None
    content: str
    unread_bytes: int = 0

    @property
    def item(self) -> ContextItem:
        return ContextItem(self.kind.value.item_type, self.name, self.content)


class Cut(NamedTuple):
    """A piece of which only the head went in."""

    name: str
    shown_bytes: int
    total_bytes: int


class Shortened(NamedTuple):
    text: str
    cut: Cut


class Fitted(NamedTuple):
    """The items in their order, and what is not in them."""

    items: tuple[ContextItem, ...]
    cut: tuple[Cut, ...]
    left_out: tuple[str, ...]
    tokens: int


class _Kept(NamedTuple):
    position: int
    item: ContextItem
    tokens: int
    cut: Cut | None


def item_tokens(item: ContextItem) -> int:
    """What an item costs as it will be sent: with its tags and entities."""
    return estimate_tokens(element(item.type, item.content, item.name))


def display_name(piece: Piece) -> str:
    return piece.kind.value.item_type if piece.name is None else piece.name


def fit(pieces: Sequence[Piece], room_tokens: int | None, marker: str) -> Fitted:
    """Fit the pieces into the room by their priorities; `marker` is put where one is cut. Without a room, all fit.

    If all fit, all go in. Else what changes between rounds goes first, and the rest shares what is left of the room,
    or of three quarters of it: so it is cut in the same place in the next round, and prompt caches still hit.
    """
    costs = [item_tokens(piece.item) for piece in pieces]
    if room_tokens is None or (sum(costs) <= room_tokens and not any(piece.unread_bytes for piece in pieces)):
        kept = [_Kept(index, piece.item, costs[index], None) for index, piece in enumerate(pieces)]
    else:
        kept = _fit_tightly(pieces, costs, room_tokens, marker)
    return _in_order(pieces, kept)


def _fit_tightly(pieces: Sequence[Piece], costs: Sequence[int], room: int, marker: str) -> list[_Kept]:
    ranked = sorted(range(len(pieces)), key=lambda index: (pieces[index].kind.value.priority, index))
    changing = [index for index in ranked if pieces[index].kind.value.changes]
    lasting = [index for index in ranked if not pieces[index].kind.value.changes]
    first = _place(pieces, costs, changing, room, marker)
    used = sum(kept.tokens for kept in first)
    kept_free = max(used, room // RESERVE) if changing else 0
    return first + _place(pieces, costs, lasting, room - kept_free, marker)


def _place(pieces: Sequence[Piece], costs: Sequence[int], ranked: Sequence[int], room: int, marker: str) -> list[_Kept]:
    kept: list[_Kept] = []
    wanted = sum(costs[index] for index in ranked)
    for index in ranked:
        wanted -= costs[index]
        if costs[index] <= room and not pieces[index].unread_bytes:
            found: _Kept | None = _Kept(index, pieces[index].item, costs[index], None)
        else:  # a piece that is cut leaves the others what they need, or half of the room
            found = _cut(index, pieces[index], min(room, max(room - wanted, room // 2)), marker)
        if found:
            kept.append(found)
            room -= found.tokens
    return kept


def _cut(position: int, piece: Piece, room: int, marker: str) -> _Kept | None:
    frame = item_tokens(ContextItem(piece.kind.value.item_type, piece.name))
    short = shorten(display_name(piece), piece.content, piece.unread_bytes, room - frame, marker)
    if short is None:
        return None
    item = ContextItem(piece.kind.value.item_type, piece.name, short.text)
    return _Kept(position, item, item_tokens(item), short.cut)


def shorten(name: str, text: str, unread_bytes: int, room_tokens: int, marker: str) -> Shortened | None:
    """The head of a text with the marker behind it, within the room; None if too little would be left to be of use."""
    total = _bytes(text) + unread_bytes
    room = room_tokens - _rendered_tokens(
        marker.format(name=shown_name(name), shown=total, total=total, line=total), False
    )
    head = _head(text, room) if room >= MIN_CUT_TOKENS else ""
    if not head:
        return None
    shown = _bytes(head)
    note = marker.format(name=shown_name(name), shown=shown, total=total, line=head.count("\n"))
    return Shortened(head + note, Cut(name, shown, total))


def _bytes(text: str) -> int:
    """How many bytes the text has on the disk, where an invalid byte came to us as one surrogate."""
    try:
        return len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(text.encode("utf-8", "surrogatepass"))


def _head(text: str, room: int) -> str:
    """As many whole lines as fit; of a first line that does not fit, its start."""
    plain = carries(text)
    end = 0
    while end < len(text):
        stop = text.find("\n", end) + 1 or len(text)
        cost = _rendered_tokens(text[end:stop], plain)
        if cost > room:
            break
        room -= cost
        end = stop
    return text[:end] if end else _start(text[: text.find("\n") + 1 or len(text)], room, plain)


def _start(line: str, room: int, plain: bool) -> str:
    length = min(len(line), room * 16)
    while length and (cost := _rendered_tokens(line[:length], plain)) >= room:
        length = min(length * room // (cost + 1), length - 1)
    return line[:length]


def _rendered_tokens(text: str, plain: bool) -> int:
    return estimate_tokens(escape(text if plain else spell(text)))


def _in_order(pieces: Sequence[Piece], kept: Iterable[_Kept]) -> Fitted:
    ordered = sorted(kept, key=lambda one: (pieces[one.position].kind.value.place, one.position))
    present = {one.position for one in ordered}
    left_out = tuple(display_name(piece) for index, piece in enumerate(pieces) if index not in present)
    cut = tuple(one.cut for one in ordered if one.cut)
    return Fitted(tuple(one.item for one in ordered), cut, left_out, sum(one.tokens for one in ordered))
