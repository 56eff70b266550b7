"""Escape untrusted text for a terminal."""

from __future__ import annotations

# C0 and C1 controls and the marks of bidirectional text; a line feed, a tab and the carriage return
# of a line end are data
_CONTROLS = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)"
)


def escape_controls(text: str) -> str:
    """Escape what can control a terminal or hide text, for a reader that is a program."""
    # Imported here: the fast path does not need it
    import re

    return re.sub(_CONTROLS, lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_json(text: str) -> str:
    """Escape the same characters in a JSON text, as JSON does; its values stay the same."""
    if text.isprintable():
        return text

    import re

    return re.sub(_CONTROLS, lambda found: f"\\u{ord(found[0]):04x}", text)


def escape_unprintable(text: str, keep: str = "") -> str:
    """Escape every unprintable character, except for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )
