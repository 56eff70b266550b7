"""The life of a workflow: every step a person or the engine can take, and no other.

A step returns the workflow as it is afterwards, or a Refusal that says why it cannot be taken now.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from phasegate.core.workflow.gate import GateOutcome, GateResult
from phasegate.core.workflow.workflows import (
    DESCRIPTION_NOUNS,
    UNMERGED_WORKFLOWS,
    find_phases_problem,
    gate_name,
)


class Stage(StrEnum):
    """Where the current phase stands."""

    WORKING = "working"
    GATE_FAILED = "gate-failed"
    GATE_PASSED = "gate-passed"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


ENDED_STAGES = frozenset({Stage.COMPLETED, Stage.CANCELLED})


class Workflow(msgspec.Struct, frozen=True):
    """One feature's way through its phases."""

    feature: str
    type: str
    phases: tuple[str, ...]
    index: int = 0
    stage: Stage = Stage.WORKING
    # Of the phase; a person's answer begins another one, and no number comes twice
    round: int = 1
    noun: str | None = None
    reason: str = ""
    # What is tried again when the blocker is resolved
    blocked_at: Stage = Stage.WORKING
    # Those before a person's last answer: the limit counts from there
    rounds_before: int = 0
    # The last round of each phase that was left, by its position: numbers go on after that
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
    """Why a step cannot be taken now, and what can."""

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
    """A new workflow at its first phase, unless the feature has an active one."""
    if any(workflow.feature == feature and workflow.is_active for workflow in existing):
        return Refusal(
            f"feature {feature} has an active workflow", "go on with it, or cancel it first"
        )

    wrong = find_phases_problem(phases)
    if wrong:
        return Refusal(f"workflow {type_}: {wrong}")

    return Workflow(feature=feature, type=type_, phases=phases, noun=noun)


def apply_gate(workflow: Workflow, result: GateResult, limit: int) -> WorkflowOrRefusal:
    """The gate was checked.

    A failed one may be revised until the limit of rounds is used up; then a person decides.
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
    """Go on to the next phase, from a passed gate only."""
    if workflow.stage is not Stage.GATE_PASSED:
        return _refuse(workflow, "advance", f"{gate_name(workflow.phase)} has not passed")
    if workflow.is_last_phase:
        return _refuse(workflow, "advance", "this was the last phase: complete the workflow")
    return _enter_phase(workflow, workflow.index + 1)


def go_back(workflow: Workflow, phase: str, why: str) -> WorkflowOrRefusal:
    """Go back to an earlier phase. Its gate and all gates behind it must pass again."""
    if not why.strip():
        return Refusal("going back needs a reason", 'back PHASE "why"')
    if not workflow.is_active:
        return _refuse(workflow, "go back")

    earlier = workflow.phases[: workflow.index]
    if phase not in earlier:
        if earlier:
            there = f"earlier are: {', '.join(earlier)}"
        else:
            there = "this is the first phase"

        return Refusal(f"cannot go back: {phase} is not before {workflow.phase}", there)

    return _enter_phase(workflow, workflow.phases.index(phase))


def _enter_phase(workflow: Workflow, index: int) -> Workflow:
    """The workflow at the first of a phase's rounds.

    A phase that was worked on before counts on from there.
    """
    used = [*workflow.used, *([0] * (len(workflow.phases) - len(workflow.used)))]
    used[workflow.index] = workflow.round
    before = used[index]
    begun = msgspec.structs.replace(
        workflow, stage=Stage.WORKING, round=before + 1, rounds_before=before, reason=""
    )

    return msgspec.structs.replace(begun, index=index, used=tuple(used), blocked_at=Stage.WORKING)


def retry(workflow: Workflow) -> WorkflowOrRefusal:
    """One more round of the phase after a failed gate."""
    if workflow.stage is not Stage.GATE_FAILED:
        return _refuse(workflow, "retry", "no gate has failed")
    return msgspec.structs.replace(workflow, stage=Stage.WORKING, round=workflow.round + 1)


def escalate(workflow: Workflow, why: str) -> WorkflowOrRefusal:
    """Stop for a person."""
    if not why.strip():
        return Refusal("an escalation needs a reason")
    if workflow.stage not in {Stage.WORKING, Stage.GATE_FAILED, Stage.GATE_PASSED}:
        return _refuse(workflow, "escalate")

    blocked = _move_to(workflow, Stage.BLOCKED, why.strip())
    # Behind a passed gate it is the way on that is blocked, a merge for instance: the gate need not
    # pass again.
    passed = workflow.stage is Stage.GATE_PASSED

    return msgspec.structs.replace(
        blocked, blocked_at=Stage.GATE_PASSED if passed else Stage.WORKING
    )


def resolve(workflow: Workflow, how: str) -> WorkflowOrRefusal:
    """A person has resolved the blocker.

    The blocked step is tried again, a phase in a new round, with all tries.
    """
    if not how.strip():
        return Refusal("say how the blocker was resolved")
    if workflow.stage is not Stage.BLOCKED:
        return _refuse(workflow, "resolve", "nothing is blocked")

    resumed = msgspec.structs.replace(workflow, stage=workflow.blocked_at, reason=how.strip())
    if workflow.blocked_at is Stage.WORKING:
        return msgspec.structs.replace(
            resumed, round=workflow.round + 1, rounds_before=workflow.round
        )

    return msgspec.structs.replace(resumed, blocked_at=Stage.WORKING)


def cancel(workflow: Workflow, reason: str) -> WorkflowOrRefusal:
    """End the workflow without completing it."""
    if not reason.strip():
        return Refusal("a cancellation needs a reason", 'cancel --reason "..."')
    if not workflow.is_active:
        return _refuse(workflow, "cancel")
    return _move_to(workflow, Stage.CANCELLED, reason.strip())


def complete(workflow: Workflow) -> WorkflowOrRefusal:
    """End the workflow after the gate of its last phase has passed."""
    if workflow.stage is not Stage.GATE_PASSED or not workflow.is_last_phase:
        return _refuse(workflow, "complete", "the gate of its last phase has not passed")
    return _move_to(workflow, Stage.COMPLETED)


def build_state_view(workflow: Workflow | None) -> dict[str, object]:
    """What state.json shows.

    The fields of the read contract; `noun` only for a type of the user's own.

    `stage` is there only where going on would be wrong: a failed gate, a blocker. A reader of the
    block is then told what to do about that.
    """
    if workflow is None or not workflow.is_active:
        return {"active_workflow": None}

    view: dict[str, object] = {
        "type": workflow.type,
        "phases": list(workflow.phases),
        "current_phase": workflow.phase,
        "current_phase_index": workflow.index,
        "artifact_folder": workflow.feature,
        "phase_status": {
            key: _phase_status(workflow, position) for position, key in enumerate(workflow.phases)
        },
    }

    if workflow.noun is not None and workflow.type not in DESCRIPTION_NOUNS:
        view["noun"] = workflow.noun
    if workflow.stage in (Stage.GATE_FAILED, Stage.BLOCKED):
        view["stage"] = str(workflow.stage)

    return {"active_workflow": view}


def choose_workflow(workflows: Iterable[Workflow], feature: str | None) -> WorkflowOrRefusal:
    """The workflow that an order is about: the one that was asked for, else the only one in work.

    An order to the wrong feature cannot be taken back, so none is guessed.
    """
    active = {workflow.feature: workflow for workflow in workflows if workflow.is_active}
    if feature in active:
        return active[feature]
    if feature:
        return Refusal(f"feature {feature} has no active workflow", _active_features_hint(active))
    if len(active) == 1:
        return next(iter(active.values()))

    return Refusal(
        "no workflow is active" if not active else "several features are in work",
        _active_features_hint(active),
    )


def _active_features_hint(active: Iterable[str]) -> str:
    names = ", ".join(sorted(active))
    if names:
        return f"choose with --feature: {names}"
    return 'start one: phasegate run feature "..."'


def _move_to(workflow: Workflow, stage: Stage, reason: str = "") -> Workflow:
    return msgspec.structs.replace(workflow, stage=stage, reason=reason)


def _refuse(workflow: Workflow, verb: str, why: str = "") -> Refusal:
    return Refusal(f"cannot {verb}: {why or f'the workflow is {workflow.stage}'}")


def _phase_status(workflow: Workflow, position: int) -> str:
    if position < workflow.index:
        return "completed"
    if position > workflow.index:
        return "pending"
    if workflow.stage is Stage.GATE_PASSED:
        return "completed"
    return "in_progress"
