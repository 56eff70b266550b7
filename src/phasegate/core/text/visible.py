"""Foreign text on its way to a terminal: nothing in it is obeyed, all of it is seen."""

from __future__ import annotations


def escape_unprintable(text: str, keep: str = "") -> str:
    """The text with every character that cannot be seen written as an escape, but those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )
