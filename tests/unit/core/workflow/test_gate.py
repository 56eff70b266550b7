"""What the evidence for a gate leads to."""

from __future__ import annotations

import itertools

import pytest

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.workflow.gate import GateEvidence, GateOutcome, GateRequirements, evaluate_gate

DEMANDS = GateRequirements(artifacts=("spec.md", "proposal.md"), commands=("test", "lint"))
COMPLETE = GateEvidence(frozenset(DEMANDS.artifacts), {"test": True, "lint": True}, Verdict.PASS)


@pytest.mark.demand("W3.b")
def test_a_gate_passes_when_documents_commands_and_verdict_agree() -> None:
    assert evaluate_gate(DEMANDS, COMPLETE).outcome is GateOutcome.PASSED


@pytest.mark.demand("W3.f", "W3.b")
def test_only_complete_evidence_passes_a_gate() -> None:
    """Every combination of what can be there, not there, or failed: exactly one of them passes."""
    documents = [
        frozenset(names)
        for size in range(3)
        for names in itertools.combinations(DEMANDS.artifacts, size)
    ]
    results = [
        {},
        {"test": True},
        {"test": True, "lint": False},
        {"test": False, "lint": True},
        COMPLETE.commands,
    ]
    every = itertools.product(documents, results, [None, *Verdict])
    passed = [
        GateEvidence(*case)
        for case in every
        if evaluate_gate(DEMANDS, GateEvidence(*case)).outcome is GateOutcome.PASSED
    ]
    assert passed == [COMPLETE]


@pytest.mark.demand("W3.f")
def test_no_verdict_overrides_a_failed_command() -> None:
    result = evaluate_gate(
        DEMANDS, GateEvidence(COMPLETE.artifacts, {"test": False, "lint": True}, Verdict.PASS)
    )
    assert (result.outcome, result.reasons) == (GateOutcome.FAILED, ("test failed",))


def test_what_is_not_finished_is_not_called_failed() -> None:
    commands = {"test": None, "lint": True}
    result = evaluate_gate(DEMANDS, GateEvidence(COMPLETE.artifacts, commands, Verdict.PASS))
    assert (result.outcome, result.reasons) == (GateOutcome.FAILED, ("test is not finished",))


@pytest.mark.demand("W3.b")
def test_the_reasons_come_in_the_order_of_the_checks() -> None:
    result = evaluate_gate(
        DEMANDS, GateEvidence(frozenset({"spec.md"}), {"test": False}, Verdict.NEEDS_CHANGES)
    )
    assert result.reasons == (
        "proposal.md is missing",
        "test failed",
        "lint was not run",
        "the verdict is NEEDS_CHANGES",
    )


@pytest.mark.demand("W3.g")
@pytest.mark.parametrize("verdict", [Verdict.REJECTED, Verdict.MAJOR_ISSUES])
def test_a_rejection_stops_for_a_person(verdict: Verdict) -> None:
    evidence = GateEvidence(COMPLETE.artifacts, COMPLETE.commands, verdict)
    assert evaluate_gate(DEMANDS, evidence).outcome is GateOutcome.BLOCKED


@pytest.mark.demand("W3.c")
@pytest.mark.parametrize("verdict", [Verdict.NEEDS_REVISION, Verdict.NEEDS_CHANGES, None])
def test_a_requested_change_fails_the_gate(verdict: Verdict | None) -> None:
    evidence = GateEvidence(COMPLETE.artifacts, COMPLETE.commands, verdict)
    assert evaluate_gate(DEMANDS, evidence).outcome is GateOutcome.FAILED


def test_a_gate_without_a_critic_needs_no_verdict_but_heeds_one() -> None:
    demands = GateRequirements(verdict=False)
    assert evaluate_gate(demands, GateEvidence()).outcome is GateOutcome.PASSED
    assert (
        evaluate_gate(demands, GateEvidence(verdict=Verdict.NEEDS_CHANGES)).outcome
        is GateOutcome.FAILED
    )


def test_truthy_is_not_true() -> None:
    evidence = GateEvidence(COMPLETE.artifacts, {"test": 1, "lint": True}, Verdict.PASS)  # type: ignore[dict-item]
    assert evaluate_gate(DEMANDS, evidence).outcome is GateOutcome.FAILED
