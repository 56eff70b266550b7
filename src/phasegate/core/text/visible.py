"""Escape untrusted text for a terminal."""

from __future__ import annotations


def escape_unprintable(text: str, keep: str = "") -> str:
    """Escape every unprintable character, except for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )
