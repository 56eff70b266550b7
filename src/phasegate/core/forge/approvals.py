"""Decide which approvals were given for the head of a pull request, where only times are known."""

from __future__ import annotations


def is_given_for_head(
    approved_at_s: float | None, pushed_at_s: float | None, *, was_moved: bool
) -> bool:
    """Return whether an approval was given after the head was pushed.

    Unknown times are a no. So is the same time if there was another head before: it may be a whole
    second.
    """
    if approved_at_s is None or pushed_at_s is None:
        return False
    if was_moved:
        return approved_at_s > pushed_at_s
    return approved_at_s >= pushed_at_s
