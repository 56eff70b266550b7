"""Forecast the agent runs and tokens of a workflow from earlier ones, as an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PastRun(NamedTuple):
    """What a completed workflow of the same type took."""

    agent_runs: int
    # As reported by the agents; 0 if they report none
    tokens: int


# The demo: three packages, one revision of the plan, one requested change; prompts of 60 000 tokens
DEMO_RUNS = (PastRun(24, 60_000),)


def describe_forecast(past: Sequence[PastRun], type_: str) -> str:
    """Describe the interval of agent runs and tokens; without a record, that of the demo."""
    source = f"{len(past)} earlier {type_} run{'s' if len(past) != 1 else ''} of this repository"
    if not past:
        past = DEMO_RUNS
        source = "the demo; no earlier run is on record"

    text = f"Forecast: {_interval([run.agent_runs for run in past])} agent runs"
    tokens = [run.tokens for run in past if run.tokens]
    if tokens:
        text += f", {_interval(tokens)} tokens"

    return f"{text} (from {source})"


def _interval(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    if low == high:
        # One value says nothing about the spread: half and double are common
        low, high = (low + 1) // 2, high * 2
    return f"{low:,} to {high:,}".replace(",", " ")
