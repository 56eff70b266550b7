"""Select the next-steps block.

The hook loads this module: it imports only our own light modules.
"""

from __future__ import annotations

from phasegate.core.answer.block import check_block as check_block
from phasegate.core.answer.block import render_menu
from phasegate.core.workflow.workflow_phases import (
    is_printable,
    resolve_display_name,
    split_phase_key,
    workflow_noun,
)

COMPLETE_ITEM = "Complete workflow and merge to main"
RESOLVE_ITEM = "Resolve blocker and retry"
WORKFLOW_STATUS_ITEM = "Show workflow status"
PROJECT_STATUS_ITEM = "View project status"

# Fixed texts. Gate failure and blocker require an active workflow, completion and cancellation do
# not.
_GATE_FAILED = ("Review gate failure details", "Retry gate check", "Escalate to human")
_BLOCKER = (RESOLVE_ITEM, "Cancel workflow", WORKFLOW_STATUS_ITEM)
_COMPLETED = ("Start a new feature", "Run tests", PROJECT_STATUS_ITEM)
_CANCELLED = ("Start a new feature", PROJECT_STATUS_ITEM)
_FALLBACK = ("Show project status", "Start a new workflow")
_DISCOVER = ("Start a new feature", "Review discovery report", PROJECT_STATUS_ITEM)

DISCOVER = "discover"
EVENTS = (
    "workflow-initialized",
    "gate-passed",
    "gate-failed",
    "blocker",
    "workflow-completed",
    "workflow-cancelled",
)

# First text: "Review ... artifacts" after a gate. Second text: "Review ..." as [2] of a phase
# agent's own block.
_REVIEW_SUBJECTS = {
    "00-quick-scan": ("quick scan", "scope estimate"),
    "01-requirements": ("requirements", "requirements documents"),
    "02-impact-analysis": ("impact analysis", "impact analysis report"),
    "02-tracing": ("trace analysis", "trace analysis report"),
    "03-architecture": ("architecture", "architecture and ADRs"),
    "04-design": ("design", "design specifications"),
    "05-test-strategy": ("test strategy", "test strategy and test cases"),
    "06-implementation": ("implementation", "implementation and test results"),
    "07-testing": ("integration test", "integration test report"),
    "08-code-review": ("code review", "code review report"),
    "09-validation": ("security validation", "security scan results"),
    "10-cicd": ("CI/CD pipeline", "pipeline configuration"),
    "11-local-testing": ("local testing", "build and health check results"),
    "12-remote-build": ("remote build", "remote deployment status"),
    "13-test-deploy": ("staging deployment", "staging deployment logs"),
    "14-production": ("release", "release notes"),
    "15-operations": ("operations", "monitoring configuration"),
    "16-upgrade-plan": ("upgrade plan", "upgrade analysis and migration plan"),
    "16-upgrade-execute": ("upgrade execution", "upgrade execution log"),
}


def next_steps(
    state: object, event: str | None = None, phase: str | None = None, own_state: object = None
) -> str | None:
    """Return the block for a state, or None if there is nothing to suggest.

    `state` is the parsed state.json, `own_state` the parsed phasegate.json beside it, both
    unchecked. With `event`: the block of that emission point; with `phase`: that phase agent's own
    block; with neither: the block of the current phase's agent. If `own_state` says that the phase
    is unfinished, its gate has failed or the workflow is blocked, [1] is what advances then.
    """
    if event is not None and event not in EVENTS:
        raise ValueError(f"unknown event: {event!r}; available: {', '.join(EVENTS)}")

    workflow = _Workflow.from_state(state, own_state)
    if event:
        items = _event_items(workflow, event)
    else:
        items = _agent_items(workflow, phase)

    if items:
        return render_menu(items)

    return None


class _Workflow:
    """The validated part of state.json from which next steps are derived."""

    def __init__(
        self,
        phases: tuple[str, ...],
        index: int,
        type_: object,
        own_noun: object = None,
        stage: object = None,
    ) -> None:
        self.phases = phases
        self.index = index
        self.type = type_
        self.own_noun = own_noun
        self.stage = stage

    @classmethod
    def from_state(cls, state: object, own_state: object) -> _Workflow | None:
        """Return the active workflow, or None if there is none or a required field is malformed."""
        if isinstance(state, dict):
            active = state.get("active_workflow")
        else:
            active = None

        if not isinstance(active, dict):
            return None

        phases = active.get("phases")
        index = active.get("current_phase_index")
        if not isinstance(phases, list) or not all(is_printable(key) for key in phases):
            return None
        # bool is a subclass of int, but True is not a valid index
        if type(index) is not int or not 0 <= index < len(phases):
            return None
        if active.get("current_phase", phases[index]) != phases[index]:
            return None

        # Another tool may have changed state.json since our own file was written
        own = own_state if isinstance(own_state, dict) else {}
        for name in ("artifact_folder", "current_phase_index"):
            if own.get(name) != active.get(name):
                own = {}

        # Version 0.1 wrote both into state.json
        noun = own.get("noun", active.get("noun"))
        return cls(
            tuple(phases), index, active.get("type"), noun, own.get("stage", active.get("stage"))
        )

    def primary_item(self, position: int) -> str:
        """Return the first item at a position: continue, or complete."""
        if position + 1 < len(self.phases):
            return f"Continue to {resolve_display_name(self.phases[position + 1])}"
        return COMPLETE_ITEM


def _event_items(workflow: _Workflow | None, event: str) -> tuple[str, ...] | None:
    """Return the items of an event's block, or None if it needs an active workflow."""
    if event == "workflow-completed":
        return _COMPLETED
    if event == "workflow-cancelled":
        return _CANCELLED
    if workflow is None:
        return None
    if event == "gate-failed":
        return _GATE_FAILED
    if event == "blocker":
        return _BLOCKER
    if event == "workflow-initialized":
        return _workflow_initialized_items(workflow)

    return _gate_passed_items(workflow)


def _workflow_initialized_items(workflow: _Workflow) -> tuple[str, ...] | None:
    """Return the items after a workflow was initialized.

    None, so that no block is shown, if its type is malformed or needs no description.
    """
    if not isinstance(workflow.type, str) or not (
        workflow.own_noun is None or is_printable(workflow.own_noun)
    ):
        return None

    noun = workflow_noun(workflow.type, str(workflow.own_noun or ""))
    if noun is None:
        return None

    first = resolve_display_name(workflow.phases[0])
    return f"Describe your {noun} to begin {first}", "Show workflow phases", WORKFLOW_STATUS_ITEM


def _gate_passed_items(workflow: _Workflow) -> tuple[str, ...]:
    primary = workflow.primary_item(workflow.index)
    if primary == COMPLETE_ITEM:
        reviewed = "all workflow"
    else:
        reviewed = _phase_noun(workflow.phases[workflow.index])
    return primary, f"Review {reviewed} artifacts", WORKFLOW_STATUS_ITEM


def _agent_items(workflow: _Workflow | None, phase: str | None) -> tuple[str, ...] | None:
    """Return the items that an agent's output ends with."""
    if phase == DISCOVER:
        return _DISCOVER

    if workflow is None:
        if phase is None:
            return None
        return _FALLBACK

    if phase is None and workflow.stage in ("gate-failed", "blocked"):
        if workflow.stage == "gate-failed":
            return _GATE_FAILED
        return _BLOCKER

    current = workflow.phases[workflow.index]
    key = current if phase is None else phase
    if key not in workflow.phases:
        return _FALLBACK

    # Another tool may have listed a phase twice: then the index decides which one is current.
    if key == current:
        position = workflow.index
    else:
        position = workflow.phases.index(key)

    primary = workflow.primary_item(position)
    if phase is None and workflow.stage == "working":
        primary = f"Run {resolve_display_name(current)}"

    return primary, review_item(key), WORKFLOW_STATUS_ITEM


def review_item(key: str) -> str:
    """Return item [2] of a phase agent's own block."""
    if key in _REVIEW_SUBJECTS:
        return f"Review {_REVIEW_SUBJECTS[key][1]}"
    return f"Review {_phase_noun(key)} artifacts"


def _phase_noun(key: str) -> str:
    if key in _REVIEW_SUBJECTS:
        return _REVIEW_SUBJECTS[key][0]
    return split_phase_key(key)[1].replace("-", " ").strip() or key
