"""The lifecycle of a workflow: every transition that the user or the engine can make.

A transition returns the new workflow, or a Refusal with the reason why it is not possible now.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from phasegate.core.text.finding import suggest_closest
from phasegate.core.workflow.gate import GateOutcome, GateResult
from phasegate.core.workflow.workflow_phases import (
    DESCRIPTION_NOUNS,
    UNMERGED_WORKFLOWS,
    find_phases_problem,
    gate_name,
    split_phase_key,
)


class Stage(StrEnum):
    """Stage of the current phase."""

    WORKING = "working"
    GATE_FAILED = "gate-failed"
    GATE_PASSED = "gate-passed"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


ENDED_STAGES = frozenset({Stage.COMPLETED, Stage.CANCELLED})


class Workflow(msgspec.Struct, frozen=True):
    """Position of a feature in its phases."""

    feature: str
    type: str
    phases: tuple[str, ...]
    index: int = 0
    stage: Stage = Stage.WORKING
    # Round of the phase. An order of the user starts a new round; numbers are never reused
    round: int = 1
    noun: str | None = None
    reason: str = ""
    # The stage to return to when the blocker is resolved
    blocked_at: Stage = Stage.WORKING
    # Rounds before the user's last order: the limit counts from there
    rounds_before: int = 0
    # Last round of each phase, by index; a phase that is entered again continues from there
    used: tuple[int, ...] = ()

    @property
    def phase(self) -> str:
        return self.phases[self.index]

    @property
    def is_active(self) -> bool:
        return self.stage not in ENDED_STAGES

    @property
    def merges(self) -> bool:
        return self.type not in UNMERGED_WORKFLOWS

    @property
    def is_last_phase(self) -> bool:
        return self.index + 1 == len(self.phases)


class Refusal(msgspec.Struct, frozen=True):
    """The reason why a transition is not possible now, and a hint about the possible ones."""

    reason: str
    hint: str = ""


WorkflowOrRefusal = Workflow | Refusal


def start(
    existing: Iterable[Workflow],
    feature: str,
    type_: str,
    phases: tuple[str, ...],
    noun: str | None = None,
) -> WorkflowOrRefusal:
    """Start a workflow at its first phase, unless the feature has an active one."""
    if any(workflow.feature == feature and workflow.is_active for workflow in existing):
        return Refusal(
            f"feature {feature} has an active workflow", "continue it, or cancel it first"
        )

    problem = find_phases_problem(phases)
    if problem:
        return Refusal(f"workflow {type_}: {problem}")

    return Workflow(feature=feature, type=type_, phases=phases, noun=noun)


def apply_gate(workflow: Workflow, result: GateResult, limit: int) -> WorkflowOrRefusal:
    """Apply a gate result.

    A failed gate may be revised until `limit` rounds are used up; then the user decides.
    """
    if workflow.stage not in {Stage.WORKING, Stage.GATE_FAILED}:
        return _refuse(workflow, "check its gate")
    if result.outcome is GateOutcome.PASSED:
        return _move_to(workflow, Stage.GATE_PASSED)

    reason = "; ".join(result.reasons)
    if result.outcome is GateOutcome.BLOCKED:
        return _move_to(workflow, Stage.BLOCKED, reason)
    if workflow.round >= workflow.rounds_before + limit:
        return _move_to(workflow, Stage.BLOCKED, f"{reason}; all {limit} rounds are used up")

    return _move_to(workflow, Stage.GATE_FAILED, reason)


def advance(workflow: Workflow) -> WorkflowOrRefusal:
    """Move to the next phase; only after a passed gate."""
    if workflow.stage is not Stage.GATE_PASSED:
        return _refuse(workflow, "advance", f"{gate_name(workflow.phase)} has not passed")
    if workflow.is_last_phase:
        return _refuse(workflow, "advance", "this was the last phase: complete the workflow")
    return enter_phase(workflow, workflow.index + 1)


def go_back(workflow: Workflow, phase: str, why: str) -> WorkflowOrRefusal:
    """Move back to an earlier phase. Its gate and all later gates must pass again."""
    if not why.strip():
        return Refusal("going back needs a reason", f'phasegate back {phase} "why"')
    if not workflow.is_active:
        return _refuse(workflow, "go back")

    earlier = workflow.phases[: workflow.index]
    if phase not in earlier:
        if earlier:
            near = suggest_closest(phase, [split_phase_key(key)[1] for key in earlier])
            hint = f"earlier phases: {', '.join(earlier)}{near}"
        else:
            hint = "this is the first phase"

        return Refusal(f"cannot go back: {phase} is not before {workflow.phase}", hint)

    return enter_phase(workflow, workflow.phases.index(phase))


def enter_phase(workflow: Workflow, index: int) -> Workflow:
    """Enter a phase. A phase that was entered before continues its round numbers."""
    unused = [0] * (len(workflow.phases) - len(workflow.used))
    used = [*workflow.used, *unused]
    used[workflow.index] = workflow.round

    return replace(
        workflow,
        index=index,
        stage=Stage.WORKING,
        round=used[index] + 1,
        rounds_before=used[index],
        used=tuple(used),
        reason="",
        blocked_at=Stage.WORKING,
    )


def retry(workflow: Workflow) -> WorkflowOrRefusal:
    """Start another round of the phase after a failed gate."""
    if workflow.stage is not Stage.GATE_FAILED:
        return _refuse(workflow, "retry", "no gate has failed")
    return replace(workflow, stage=Stage.WORKING, round=workflow.round + 1)


def escalate(workflow: Workflow, why: str) -> WorkflowOrRefusal:
    """Block the workflow until the user decides."""
    if not why.strip():
        return Refusal("an escalation needs a reason")
    if workflow.stage not in {Stage.WORKING, Stage.GATE_FAILED, Stage.GATE_PASSED}:
        return _refuse(workflow, "escalate")

    # After a passed gate, a later step such as the merge is blocked: the gate stays passed.
    blocked_at = Stage.GATE_PASSED if workflow.stage is Stage.GATE_PASSED else Stage.WORKING
    blocked = _move_to(workflow, Stage.BLOCKED, why.strip())
    return replace(blocked, blocked_at=blocked_at)


def resolve(workflow: Workflow, how: str) -> WorkflowOrRefusal:
    """Resolve a blocker and retry the blocked step; a phase starts a new round with all retries."""
    if not how.strip():
        return Refusal("describe how the blocker was resolved")
    if workflow.stage is not Stage.BLOCKED:
        return _refuse(workflow, "resolve", "nothing is blocked")

    resumed = replace(workflow, stage=workflow.blocked_at, reason=how.strip())
    if workflow.blocked_at is Stage.WORKING:
        return replace(resumed, round=workflow.round + 1, rounds_before=workflow.round)

    return replace(resumed, blocked_at=Stage.WORKING)


def cancel(workflow: Workflow, reason: str) -> WorkflowOrRefusal:
    """End the workflow without completing it."""
    if not reason.strip():
        return Refusal("a cancellation needs a reason", 'cancel --reason "..."')
    if not workflow.is_active:
        return _refuse(workflow, "cancel")
    return _move_to(workflow, Stage.CANCELLED, reason.strip())


def complete(workflow: Workflow) -> WorkflowOrRefusal:
    """Complete the workflow; only after the gate of its last phase has passed."""
    if workflow.stage is not Stage.GATE_PASSED or not workflow.is_last_phase:
        return _refuse(workflow, "complete", "the gate of its last phase has not passed")
    return _move_to(workflow, Stage.COMPLETED)


def build_state_view(workflow: Workflow | None) -> dict[str, object]:
    """Build the content of state.json: the fields of the read contract, and no others."""
    if workflow is None or not workflow.is_active:
        return {"active_workflow": None}

    return {
        "active_workflow": {
            "type": workflow.type,
            "phases": list(workflow.phases),
            "current_phase": workflow.phase,
            "current_phase_index": workflow.index,
            "artifact_folder": workflow.feature,
            "phase_status": {
                key: _phase_status(workflow, position)
                for position, key in enumerate(workflow.phases)
            },
        }
    }


def build_own_state(workflow: Workflow | None) -> dict[str, object]:
    """Build the content of phasegate.json, which the next-steps block needs besides state.json.

    It names the feature and the phase that it is about. `noun` is included only for a user-defined
    workflow type.
    """
    if workflow is None or not workflow.is_active:
        return {}

    own: dict[str, object] = {
        "artifact_folder": workflow.feature,
        "current_phase_index": workflow.index,
        "stage": str(workflow.stage),
    }
    if workflow.noun is not None and workflow.type not in DESCRIPTION_NOUNS:
        own["noun"] = workflow.noun

    return own


def choose_workflow(workflows: Iterable[Workflow], feature: str | None) -> WorkflowOrRefusal:
    """Return the requested workflow, by its name or a unique prefix, else the only active one.

    It never guesses, because an order to the wrong feature cannot be undone.
    """
    active = {workflow.feature: workflow for workflow in workflows if workflow.is_active}
    if feature in active:
        return active[feature]

    matches = [slug for slug in active if feature and slug.startswith(feature)]
    if len(matches) == 1:
        return active[matches[0]]
    if feature:
        return Refusal(f"feature {feature} has no active workflow", _active_features_hint(active))
    if len(active) == 1:
        return next(iter(active.values()))

    reason = "several features are active" if active else "no workflow is active"
    return Refusal(reason, _active_features_hint(active))


def _active_features_hint(active: Iterable[str]) -> str:
    names = ", ".join(sorted(active))
    if names:
        return f"choose with --feature: {names}"
    return 'start one: phasegate run feature "..."'


def _move_to(workflow: Workflow, stage: Stage, reason: str = "") -> Workflow:
    return replace(workflow, stage=stage, reason=reason)


def _refuse(workflow: Workflow, verb: str, why: str = "") -> Refusal:
    return Refusal(f"cannot {verb}: {why or f'the workflow is {workflow.stage}'}")


def _phase_status(workflow: Workflow, position: int) -> str:
    """Return "completed", "in_progress" or "pending" for a phase."""
    if position < workflow.index:
        return "completed"
    if position > workflow.index:
        return "pending"
    # A blocker behind a passed gate concerns the merge: the phase stays completed
    passed_and_blocked = (
        workflow.stage is Stage.BLOCKED and workflow.blocked_at is Stage.GATE_PASSED
    )
    if workflow.stage is Stage.GATE_PASSED or passed_and_blocked:
        return "completed"
    return "in_progress"
