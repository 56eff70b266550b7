"""What agents have used, and the hard caps on it: nothing is started once one is reached."""

from __future__ import annotations

from typing import NamedTuple


class Spending(NamedTuple):
    """Tokens and dollars, as the agents report them."""

    tokens: int = 0
    cost_usd: float = 0.0


class SpendingCaps(NamedTuple):
    """The most that one feature may use from its start to its end, and the most that all of them
    may.
    """

    run_cost_usd: float
    total_cost_usd: float
    run_tokens: int


def find_reached_cap(caps: SpendingCaps, run: Spending, total: Spending) -> tuple[str, str] | None:
    """Which cap is reached, in words, and the key that raises it; None while there is room."""
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
    """What was used, for people: `1.23 USD, 45 000 tokens`."""
    tokens = f"{spent.tokens:,}".replace(",", " ")
    if spent.cost_usd >= 0.01 or not spent.cost_usd:
        cost = f"{spent.cost_usd:.2f}"
    else:
        cost = f"{spent.cost_usd:.4f}"

    return f"{cost} USD, {tokens} tokens"
