"""Fit context into a token budget: keep items whole, cut them, or leave them out.

Everything that is cut or left out is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from phasegate.core.prompt.document import ContextItem, ItemType, render_element
from phasegate.core.prompt.hidden_characters import quote_name
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.core.text.xml import encode_forbidden, escape_text, is_xml_safe

# A shorter part of an item is useless
MIN_CUT_TOKENS = 200
# A quarter of the room is reserved for volatile pieces, so that the others stay the same from round
# to round
RESERVE_DIVISOR = 4


class _PieceTraits(NamedTuple):
    priority: int
    position: int
    item_type: ItemType
    is_volatile: bool


class PieceKind(Enum):
    """The kind of a piece of context.

    Its priority decides which pieces get room first. Its position orders the prompt: volatile
    pieces come last.
    """

    # A document of an earlier phase, in the order of the phases
    ARTIFACT = _PieceTraits(5, 1, ItemType.ARTIFACT, False)
    # The agent file of the phase
    ROLE = _PieceTraits(4, 2, ItemType.ARTIFACT, False)
    FILE = _PieceTraits(6, 3, ItemType.FILE, False)
    THOUGHT = _PieceTraits(7, 4, ItemType.THOUGHT, False)
    # A document of this phase, revised in each round
    REVISED = _PieceTraits(3, 5, ItemType.ARTIFACT, True)
    TASKS = _PieceTraits(2, 6, ItemType.ARTIFACT, True)
    FINDINGS = _PieceTraits(1, 7, ItemType.ARTIFACT, True)


class ContextPiece(NamedTuple):
    """A candidate for the context.

    `unread_bytes` is the part of a large file that was not read at all.
    """

    kind: PieceKind
    name: str | None
    content: str
    unread_bytes: int = 0

    @property
    def item(self) -> ContextItem:
        return ContextItem(self.kind.value.item_type, self.name, self.content)


class Truncation(NamedTuple):
    """A piece that was truncated: only its first part was included."""

    name: str
    shown_bytes: int
    total_bytes: int


class ShortenedText(NamedTuple):
    """The first part of a text with a marker after it."""

    text: str
    cut: Truncation


class FittedContext(NamedTuple):
    """The items in document order, and the names of everything truncated or omitted."""

    items: tuple[ContextItem, ...]
    cut: tuple[Truncation, ...]
    left_out: tuple[str, ...]
    tokens: int


class _KeptPiece(NamedTuple):
    piece_index: int
    item: ContextItem
    tokens: int
    cut: Truncation | None


def estimate_item_tokens(item: ContextItem) -> int:
    """Estimate the tokens of an item as it will be sent, with tags and entities."""
    return estimate_tokens(render_element(item.type, item.content, item.name))


def get_display_name(piece: ContextPiece) -> str:
    """Return the name of a piece, or its type if it has none."""
    if piece.name is None:
        return piece.kind.value.item_type
    return piece.name


def fit_context(
    pieces: Sequence[ContextPiece], max_tokens: int | None, marker: str
) -> FittedContext:
    """Fit the pieces into the limit by priority; `marker` is inserted where one is cut.

    Without a limit, or if all fit, all are included. Otherwise they compete by priority.
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
    pieces: Sequence[ContextPiece], costs: Sequence[int], available: int, marker: str
) -> list[_KeptPiece]:
    """Place the volatile pieces first. The stable ones get the rest, but at most three quarters of
    `available` if there are volatile ones.

    An unused part of the reserve stays empty, so that the stable pieces are cut at the same place
    in every round and prompt caches hit.
    """
    ranked = sorted(
        range(len(pieces)), key=lambda index: (pieces[index].kind.value.priority, index)
    )
    volatile = [index for index in ranked if pieces[index].kind.value.is_volatile]
    stable = [index for index in ranked if not pieces[index].kind.value.is_volatile]
    kept_volatile = _place_pieces(pieces, costs, volatile, available, marker)
    used = sum(kept.tokens for kept in kept_volatile)
    if volatile:
        reserved = max(used, available // RESERVE_DIVISOR)
    else:
        reserved = 0

    return kept_volatile + _place_pieces(pieces, costs, stable, available - reserved, marker)


def _place_pieces(
    pieces: Sequence[ContextPiece],
    costs: Sequence[int],
    ranked: Sequence[int],
    available: int,
    marker: str,
) -> list[_KeptPiece]:
    """Place pieces in order of rank, and cut those that do not fit whole."""
    kept: list[_KeptPiece] = []
    wanted = sum(costs[index] for index in ranked)

    for index in ranked:
        wanted -= costs[index]
        if costs[index] <= available and not pieces[index].unread_bytes:
            piece: _KeptPiece | None = _KeptPiece(index, pieces[index].item, costs[index], None)
        else:
            # A piece that is cut leaves enough for the others, but uses at least half of the space
            share = min(available, max(available - wanted, available // 2))
            piece = _shorten_piece(index, pieces[index], share, marker)

        if piece:
            kept.append(piece)
            available -= piece.tokens

    return kept


def _shorten_piece(
    index: int, piece: ContextPiece, available: int, marker: str
) -> _KeptPiece | None:
    """Cut a piece to the available tokens, including its tags; None if too little would be left."""
    # A control character in the content adds an attribute to the tag
    content = "" if is_xml_safe(piece.content) else "\0"
    frame = estimate_item_tokens(ContextItem(piece.kind.value.item_type, piece.name, content))
    short = shorten_text(
        get_display_name(piece), piece.content, piece.unread_bytes, available - frame, marker
    )
    if short is None:
        return None

    item = ContextItem(piece.kind.value.item_type, piece.name, short.text)
    return _KeptPiece(index, item, estimate_item_tokens(item), short.cut)


def shorten_text(
    name: str, text: str, unread_bytes: int, max_tokens: int, marker: str
) -> ShortenedText | None:
    """Return the first part of a text with the marker after it, within the limit.

    Return None if too little would be left to be useful.
    """
    total = _count_bytes(text) + unread_bytes
    available = max_tokens - _estimate_rendered_tokens(
        marker.format(name=quote_name(name), shown=total, total=total, line=total), False
    )
    head = _take_head(text, available) if available >= MIN_CUT_TOKENS else ""
    if not head:
        return None

    shown = _count_bytes(head)
    note = marker.format(name=quote_name(name), shown=shown, total=total, line=head.count("\n"))

    return ShortenedText(head + note, Truncation(name, shown, total))


def _count_bytes(text: str) -> int:
    """Count the bytes of a text on disk, where each invalid byte was decoded as one surrogate."""
    try:
        return len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(text.encode("utf-8", "surrogatepass"))


def _take_head(text: str, available: int) -> str:
    """Return as many whole lines as fit, or the start of a first line that does not fit."""
    plain = is_xml_safe(text)
    end = 0

    while end < len(text):
        stop = text.find("\n", end) + 1 or len(text)
        cost = _estimate_rendered_tokens(text[end:stop], plain)
        if cost > available:
            break

        available -= cost
        end = stop

    if end:
        return text[:end]

    return _take_line_start(text[: text.find("\n") + 1 or len(text)], available, plain)


def _take_line_start(line: str, available: int, plain: bool) -> str:
    length = min(len(line), available * 16)
    while length and (cost := _estimate_rendered_tokens(line[:length], plain)) >= available:
        length = min(length * available // (cost + 1), length - 1)
    return line[:length]


def _estimate_rendered_tokens(text: str, plain: bool) -> int:
    return estimate_tokens(escape_text(text if plain else encode_forbidden(text)))


def _order_kept(pieces: Sequence[ContextPiece], kept: Iterable[_KeptPiece]) -> FittedContext:
    """Return the kept pieces in document order, with the names of the others."""
    ordered = sorted(
        kept, key=lambda kept: (pieces[kept.piece_index].kind.value.position, kept.piece_index)
    )
    present = {piece.piece_index for piece in ordered}
    left_out = tuple(
        get_display_name(piece) for index, piece in enumerate(pieces) if index not in present
    )

    return FittedContext(
        items=tuple(piece.item for piece in ordered),
        cut=tuple(piece.cut for piece in ordered if piece.cut),
        left_out=left_out,
        tokens=sum(piece.tokens for piece in ordered),
    )
