"""Decide which approvals were given for the head of a pull request, where only times are known."""

from __future__ import annotations


def is_given_for_head(approved_at_s: float | None, pushed_at_s: float | None) -> bool:
    """Return whether an approval was given after the head was pushed. Unknown times are a no."""
    return approved_at_s is not None and pushed_at_s is not None and approved_at_s >= pushed_at_s
