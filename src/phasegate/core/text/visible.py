"""Escape untrusted text for a terminal."""

from __future__ import annotations

# C0 and C1 controls, the marks of bidirectional text, and characters that show nothing, of which
# tags can spell hidden text; a line feed, a tab and the carriage return of a line end are data
_CONTROLS = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    r"\U000e0000-\U000e007f]|\r(?!\n)"
)


def escape_controls(text: str) -> str:
    """Escape what can control a terminal or hide text, for a reader that is a program."""
    # Imported here: the fast path does not need it
    import re

    return re.sub(_CONTROLS, lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_json(text: str) -> str:
    """Escape every unprintable character in a JSON text, as JSON does; its values stay the same."""
    if text.isprintable():
        return text

    import json

    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def escape_unprintable(text: str, keep: str = "") -> str:
    """Escape every unprintable character, except for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )
