"""Decide which approvals were given for the head of a pull request, where only times are known."""

from __future__ import annotations

from datetime import UTC, datetime


def is_given_for_head(approved_at: str, pushed_at: str) -> bool:
    """Return whether an approval was given after the head was pushed. Unknown times are a no."""
    approved = _parse_time(approved_at)
    pushed = _parse_time(pushed_at)
    return approved is not None and pushed is not None and approved >= pushed


def _parse_time(text: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None

    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
