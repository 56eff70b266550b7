"""Forecast the agent runs and tokens of a workflow from earlier ones, as an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from phasegate.core.text.wording import pluralize


class PastRun(NamedTuple):
    """What a completed workflow of the same type took."""

    agent_runs: int
    # As reported by the agents; 0 if they report none
    tokens: int


# Revisions and more packages: a run of three packages takes up to three times the least
_MOST_RUNS = 3
# Tokens of a prompt, as in runs on real repositories
_PROMPT_TOKENS = (2_500, 5_000)


def describe_forecast(past: Sequence[PastRun], type_: str, least_runs: int) -> str:
    """Describe the interval of agent runs and tokens; without a record, that of the phases.

    `least_runs`: with one package and without revisions.
    """
    if past:
        source = f"{pluralize(len(past), f'earlier {type_} run')} of this repository"
    else:
        source = f"the phases ahead; no earlier {type_} run is on record"
        most = _MOST_RUNS * least_runs
        low, high = _PROMPT_TOKENS
        past = (PastRun(least_runs, low * least_runs), PastRun(most, high * most))

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
