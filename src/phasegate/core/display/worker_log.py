"""Describe the steps of a fleet's worker: a log line for each, and metrics for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

# Outcome of a step that ended without an error
STEP_DONE = "done"


class StepLog(NamedTuple):
    """A step that a worker has run; `outcome` is `done` or the kind of its failure."""

    ts: str
    feature: str
    step: str
    outcome: str
    duration_s: float


class StepTotal(NamedTuple):
    """The count and total duration of a step's runs with one outcome."""

    steps: int = 0
    duration_s: float = 0.0


class WorkerMetrics(NamedTuple):
    """The state of a worker. Totals are by step and outcome."""

    version: str
    features: int
    is_draining: bool
    totals: Mapping[tuple[str, str], StepTotal]


def format_step_log(log: StepLog) -> str:
    """Return a step as one line of JSON."""
    fields = {**log._asdict(), "duration_s": round(log.duration_s, 3)}
    return json.dumps({"event": "step", **fields})


def add_step(total: StepTotal, log: StepLog) -> StepTotal:
    """Return a total with one more step."""
    return StepTotal(total.steps + 1, total.duration_s + log.duration_s)


def render_metrics(metrics: WorkerMetrics) -> str:
    """Return the metrics in the text format of Prometheus."""
    lines = [
        "# TYPE phasegate_worker_info gauge",
        f'phasegate_worker_info{{version="{metrics.version}"}} 1',
        "# TYPE phasegate_worker_features gauge",
        f"phasegate_worker_features {metrics.features}",
        "# TYPE phasegate_worker_draining gauge",
        f"phasegate_worker_draining {int(metrics.is_draining)}",
        "# TYPE phasegate_step_seconds summary",
    ]
    for (step, outcome), total in sorted(metrics.totals.items()):
        labels = f'{{step="{step}",outcome="{outcome}"}}'
        lines.append(f"phasegate_step_seconds_sum{labels} {total.duration_s:.3f}")
        lines.append(f"phasegate_step_seconds_count{labels} {total.steps}")

    return "".join(f"{line}\n" for line in lines)
