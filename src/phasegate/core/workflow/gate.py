"""Evaluate a gate: its demands against the evidence.

No verdict overrides a missing document or a failed check.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from phasegate.core.answer.vocabulary import Verdict

BLOCKING_VERDICTS = frozenset({Verdict.REJECTED, Verdict.MAJOR_ISSUES})


class GateOutcome(StrEnum):
    PASSED = "passed"
    # Another revision round may fix it
    FAILED = "failed"
    # The user must decide
    BLOCKED = "blocked"


class GateRequirements(msgspec.Struct, frozen=True):
    """The documents, commands and verdict that a gate requires."""

    artifacts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    verdict: bool = True


class GateEvidence(msgspec.Struct, frozen=True):
    """Our own evidence for a gate. Anything not listed here did not happen."""

    artifacts: frozenset[str] = frozenset()
    # None: started and not finished
    commands: Mapping[str, bool | None] = {}
    verdict: Verdict | None = None


class GateResult(msgspec.Struct, frozen=True):
    outcome: GateOutcome
    reasons: tuple[str, ...] = ()


def evaluate_gate(demands: GateRequirements, evidence: GateEvidence) -> GateResult:
    """Evaluate documents, commands and verdict. Missing evidence counts as failed."""
    missing = (f"{name} is missing" for name in demands.artifacts if name not in evidence.artifacts)
    failed = (
        _describe_command(name, evidence)
        for name in demands.commands
        if evidence.commands.get(name) is not True
    )
    reasons = (*missing, *failed)
    # Nobody was asked for a verdict on what is not there
    if evidence.verdict is not None or not reasons:
        reasons = (*reasons, *_verdict_failure(demands, evidence))

    if evidence.verdict in BLOCKING_VERDICTS:
        return GateResult(GateOutcome.BLOCKED, reasons)
    if reasons:
        return GateResult(GateOutcome.FAILED, reasons)
    return GateResult(GateOutcome.PASSED)


def _describe_command(name: str, evidence: GateEvidence) -> str:
    if name not in evidence.commands:
        return f"{name} was not run"
    if evidence.commands[name] is None:
        return f"{name} is not finished"
    return f"{name} failed"


def _verdict_failure(demands: GateRequirements, evidence: GateEvidence) -> tuple[str, ...]:
    if evidence.verdict is Verdict.PASS or (evidence.verdict is None and not demands.verdict):
        return ()
    if evidence.verdict is None:
        return ("there is no verdict",)
    return (f"the verdict is {evidence.verdict}",)
