"""Spending of agents and its hard caps: no job is started once a cap is reached.

`engine/jobs/admission.py` applies the caps before each job.
"""

from __future__ import annotations

from typing import NamedTuple


class Spending(NamedTuple):
    """Tokens and dollars, as the agents report them."""

    tokens: int = 0
    cost_usd: float = 0.0


class SpendingCaps(NamedTuple):
    """Caps on one feature from its start to its end, and on all features together."""

    run_cost_usd: float
    total_cost_usd: float
    run_tokens: int


def find_reached_cap(caps: SpendingCaps, run: Spending, total: Spending) -> tuple[str, str] | None:
    """Return a description of the reached cap and its configuration key; None below all caps."""
    if run.cost_usd >= caps.run_cost_usd:
        return (
            f"this feature has used {run.cost_usd:.2f} of {caps.run_cost_usd:g} USD",
            "run_cost_usd",
        )

    if run.tokens >= caps.run_tokens:
        return f"this feature has used {run.tokens} of {caps.run_tokens} tokens", "run_tokens"

    if total.cost_usd >= caps.total_cost_usd:
        return (
            f"all features have used {total.cost_usd:.2f} of {caps.total_cost_usd:g} USD",
            "total_cost_usd",
        )

    return None


def format_spending(spent: Spending) -> str:
    """Format spending as `1.23 USD, 45 000 tokens`."""
    tokens = f"{spent.tokens:,}".replace(",", " ")
    if spent.cost_usd >= 0.01 or not spent.cost_usd:
        cost = f"{spent.cost_usd:.2f}"
    else:
        cost = f"{spent.cost_usd:.4f}"

    return f"{cost} USD, {tokens} tokens"
