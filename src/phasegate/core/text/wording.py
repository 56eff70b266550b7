"""Word lists and numbers for a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def join_names(names: Sequence[str], max_names: int) -> str:
    """Join the first names of a list, and add how many more there are."""
    shown = ", ".join(names[:max_names])
    if len(names) > max_names:
        return f"{shown} and {len(names) - max_names} more"
    return shown


def shorten(text: str, max_chars: int) -> str:
    """Cut a text that is longer than a number of characters, and mark the cut."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}..."


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 phase`, `2 phases`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"
