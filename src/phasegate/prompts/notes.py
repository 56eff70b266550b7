"""What a prompt says about itself: what was left out, what was cut, which characters hide in it."""

from __future__ import annotations

from collections.abc import Sequence

from phasegate.prompts.shipped_words import Notes, phrases
from phasegate.rules.budget import Cut
from phasegate.rules.hidden import Hidden, shown_name
from phasegate.rules.prompt import ContextItem, ItemType
from phasegate.rules.tokens import estimate_tokens

NOTES_TOKENS = 1_200
_SECTION_TOKENS = 350


def notes_on(left_out: Sequence[str], cut: Sequence[Cut], hidden: Sequence[Hidden]) -> tuple[ContextItem, ...]:
    """One item with everything there is to say; none if there is nothing."""
    words = phrases().notes
    sections = [
        _section(words.left_out, [shown_name(name) for name in left_out], words),
        _section(words.cut, [shown_name(one.name) for one in cut], words),
        _section(words.hidden, [_hidden_line(one, words) for one in hidden], words),
    ]
    said = [section for section in sections if section]
    if hidden:
        said.append(words.escaped.format())
    return (ContextItem(ItemType.ARTIFACT, words.name, "\n\n".join(said) + "\n"),) if said else ()


def _hidden_line(hidden: Hidden, words: Notes) -> str:
    phrase = words.hidden_at if hidden.line else words.hidden_in_name
    return phrase.format(item=shown_name(hidden.item), line=hidden.line, character=hidden.character)


def _section(title: str, entries: Sequence[str], words: Notes) -> str:
    """A title and as many entries as fit; the rest is counted."""
    lines = [title]
    room = _SECTION_TOKENS - estimate_tokens(title)
    for entry in entries:
        line = words.entry.format(text=entry)
        room -= estimate_tokens(line + "\n")
        if room < 0:
            lines.append(words.more.format(count=len(entries) - len(lines) + 1))
            break
        lines.append(line)
    return "\n".join(lines) if entries else ""
