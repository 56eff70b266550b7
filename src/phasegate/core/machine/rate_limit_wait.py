"""Decide whether, and until when, to wait for an agent's rate limit.

`agents/stream` recognizes rate limits in the output of agents, and `engine/drive/agent_wait` waits
for them; `engine/jobs/__init__` lists all steps in between.
"""

from __future__ import annotations

from typing import NamedTuple

RATE_LIMIT_BACKOFF_BASE_S = 30.0
MAX_RATE_LIMIT_BACKOFF_S = 3600.0
# A job whose agent stays limited for longer has failed, unless another agent can take it.
MAX_RATE_LIMIT_WAIT_S = 12 * 3600.0


class RateLimitWait(NamedTuple):
    """When an agent may be started again, and whether to wait for it."""

    retry_at_s: float
    should_wait: bool


def decide_rate_limit_wait(
    reported_retry_at_s: float | None, now_s: float, previous_limits: int, has_fallback: bool
) -> RateLimitWait:
    """Wait for a rate limit that ends soon enough, or while another agent can do the work.

    Providers often omit the reset time, or give one in the past. Then each consecutive limit
    doubles the wait.
    """
    retry_at_s = reported_retry_at_s or 0.0
    if retry_at_s <= now_s:
        retry_at_s = now_s + rate_limit_backoff_s(previous_limits)

    return RateLimitWait(
        retry_at_s=retry_at_s,
        should_wait=has_fallback or retry_at_s - now_s <= MAX_RATE_LIMIT_WAIT_S,
    )


def rate_limit_backoff_s(previous_limits: int) -> float:
    """Return the seconds to wait for a rate limit whose end is unknown.

    The delay doubles with each consecutive limit.
    """
    return min(
        MAX_RATE_LIMIT_BACKOFF_S,
        RATE_LIMIT_BACKOFF_BASE_S * 2.0 ** min(max(previous_limits, 0), 30),
    )
