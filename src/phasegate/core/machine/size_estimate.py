"""Fit the planning phases of a feature to its size, as estimated by the quick scan.

An estimate that is missing, unreadable or contradictory means: all phases. Only planning phases can
be left out; every gate, command and review of the code stays.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.core.machine.feature_events import PhasePlan
from phasegate.core.workflow.phases import TASKS_FILE, required_artifacts

ESTIMATE_PHASE = "00-quick-scan"
ESTIMATE_FILE = "quick-scan.md"
# The phase that plans a small change alone, and the phases that it replaces
PLANNING_PHASE = "04-design"
FOLDED_PHASES = ("02-impact-analysis", "03-architecture", "05-test-strategy")
_SMALL_PLAN = ("plan.md", TASKS_FILE)
_ROW = r"^\|\s*{}\b[^|\n]*\|[\s*_`]*([A-Za-z]+)[\s*_`.]*\|[^\S\n]*$"


class SizeEstimate(NamedTuple):
    """The estimate of the quick scan."""

    # small, medium or large
    size: str
    # low, medium or high
    risk: str

    @property
    def is_small(self) -> bool:
        return self.size == "small" and self.risk == "low"


def parse_estimate(quick_scan: str) -> SizeEstimate | None:
    """Read the estimate from the table of a quick scan; None unless each row occurs once."""
    sizes = re.findall(_ROW.format("Class"), quick_scan, re.MULTILINE | re.IGNORECASE)
    risks = re.findall(_ROW.format("Risk"), quick_scan, re.MULTILINE | re.IGNORECASE)
    if len(sizes) != 1 or len(risks) != 1:
        return None
    return SizeEstimate(sizes[0].lower(), risks[0].lower())


def fold_plan(plan: tuple[PhasePlan, ...]) -> tuple[PhasePlan, ...] | None:
    """Return the plan with one planning phase for a small change, or None if it cannot be folded.

    A plan whose planning phases the user has changed is kept as it is.
    """
    keys = tuple(phase.key for phase in plan)
    folded = (PLANNING_PHASE, *FOLDED_PHASES)
    if keys[:1] != (ESTIMATE_PHASE,) or not set(folded) <= set(keys):
        return None
    if any(
        phase.artifacts != required_artifacts(phase.key, keys)
        for phase in plan
        if phase.key in folded
    ):
        return None

    return tuple(
        replace(phase, artifacts=_SMALL_PLAN) if phase.key == PLANNING_PHASE else phase
        for phase in plan
        if phase.key not in FOLDED_PHASES
    )
