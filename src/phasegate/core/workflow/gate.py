"""What a gate demands and what the evidence leads to.

No verdict overrides a missing document or failed check.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from phasegate.core.answer.vocabulary import Verdict

BLOCKING_VERDICTS = frozenset({Verdict.REJECTED, Verdict.MAJOR_ISSUES})


class GateOutcome(StrEnum):
    PASSED = "passed"
    # A revision round may mend it
    FAILED = "failed"
    # A person must decide
    BLOCKED = "blocked"


class GateDemands(msgspec.Struct, frozen=True):
    """What must be there, and what must have succeeded, before a gate passes."""

    artifacts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    verdict: bool = True


class GateEvidence(msgspec.Struct, frozen=True):
    """What we found ourselves. What is not listed here did not happen."""

    artifacts: frozenset[str] = frozenset()
    commands: Mapping[str, bool] = {}
    verdict: Verdict | None = None


class GateResult(msgspec.Struct, frozen=True):
    outcome: GateOutcome
    reasons: tuple[str, ...] = ()


def evaluate_gate(demands: GateDemands, evidence: GateEvidence) -> GateResult:
    """Decide a gate: documents first, then commands, then the verdict.

    What was not shown counts as failed.
    """
    reasons = (
        *(f"{name} is missing" for name in demands.artifacts if name not in evidence.artifacts),
        *(
            _command_failure(name, evidence)
            for name in demands.commands
            if evidence.commands.get(name) is not True
        ),
        *_verdict_failure(demands, evidence),
    )

    if evidence.verdict in BLOCKING_VERDICTS:
        return GateResult(GateOutcome.BLOCKED, reasons)
    return GateResult(GateOutcome.FAILED if reasons else GateOutcome.PASSED, reasons)


def _command_failure(name: str, evidence: GateEvidence) -> str:
    if name in evidence.commands:
        return f"{name} failed"
    return f"{name} was not run"


def _verdict_failure(demands: GateDemands, evidence: GateEvidence) -> tuple[str, ...]:
    if evidence.verdict is Verdict.PASS or (evidence.verdict is None and not demands.verdict):
        return ()
    if evidence.verdict is None:
        return ("there is no verdict",)
    return (f"the verdict is {evidence.verdict}",)
