"""The kind of work of each phase, and the demands of the gate after it.

Their order is in `workflow_phases`, the moves between them in `phase_transitions`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from phasegate.core.workflow.workflow_phases import split_phase_key


class PhaseWork(StrEnum):
    """The kind of work in a phase, which determines the agent roles."""

    # A writer (role `plan`), then a critic (role `challenge`)
    PLANNING = "planning"
    # Work packages (role `implement`), each with a `review`
    PACKAGES = "packages"
    # A `review` of the whole feature
    REVIEW = "review"
    # Commands first, then a `review` of their output
    COMMANDS = "commands"


class Phase(msgspec.Struct, frozen=True):
    """The work of a phase and the evidence that its gate demands.

    `artifacts` are documents in the feature's folder, `commands` are names.
    """

    work: PhaseWork
    artifacts: tuple[str, ...]
    commands: tuple[str, ...] = ()


def _planning(*artifacts: str) -> Phase:
    return Phase(PhaseWork.PLANNING, artifacts)


# Commands are names in a language profile. Phases 12 to 15 have none by default: the user
# configures some, or attests how the phase was checked.
PHASES: dict[str, Phase] = {
    "00-quick-scan": _planning("quick-scan.md"),
    "01-requirements": _planning("proposal.md", "spec.md"),
    "02-impact-analysis": _planning("impact-analysis.md"),
    "02-tracing": _planning("trace-analysis.md"),
    "03-architecture": _planning("architecture.md"),
    "04-design": _planning("plan.md", "specs/"),
    "05-test-strategy": _planning("test-strategy.md"),
    "06-implementation": Phase(PhaseWork.PACKAGES, ("IMPLEMENTATION.md",)),
    "07-testing": Phase(PhaseWork.COMMANDS, ("REVIEW-07.md",), ("coverage",)),
    "08-code-review": Phase(PhaseWork.REVIEW, ("REVIEW-08.md",)),
    "09-validation": Phase(PhaseWork.REVIEW, ("REVIEW-09.md",)),
    "10-cicd": Phase(PhaseWork.COMMANDS, ("REVIEW-10.md",), ("lint", "typecheck")),
    "11-local-testing": Phase(PhaseWork.COMMANDS, ("REVIEW-11.md",), ("build", "test")),
    "12-remote-build": Phase(PhaseWork.COMMANDS, ("REVIEW-12.md",)),
    "13-test-deploy": Phase(PhaseWork.COMMANDS, ("REVIEW-13.md",)),
    "14-production": Phase(PhaseWork.COMMANDS, ("REVIEW-14.md",)),
    "15-operations": Phase(PhaseWork.COMMANDS, ("REVIEW-15.md",)),
    "16-upgrade-plan": _planning("upgrade-plan.md"),
    "16-upgrade-execute": Phase(PhaseWork.PACKAGES, ("upgrade-log.md",)),
}

TASKS_FILE = "tasks.md"


def get_phase(key: str) -> Phase:
    """Return the work of a phase.

    An unknown, user-defined phase is a review by default: the strictest kind that needs no
    configuration.
    """
    return PHASES.get(key) or Phase(PhaseWork.REVIEW, (f"REVIEW-{split_phase_key(key)[0]}.md",))


def required_artifacts(
    key: str, phases: tuple[str, ...], custom: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return the documents that must exist before the gate of a phase passes, in its workflow.

    The user may configure others (`custom`). tasks.md is always added to the last planning phase:
    no packages can be planned without it.
    """
    artifacts = get_phase(key).artifacts if custom is None else custom
    if key == _last_planning_phase(phases) and TASKS_FILE not in artifacts:
        return (*artifacts, TASKS_FILE)

    return artifacts


def _last_planning_phase(phases: tuple[str, ...]) -> str | None:
    """Return the last planning phase before packages are made: it must deliver tasks.md."""
    last: str | None = None

    for key in phases:
        work = get_phase(key).work
        if work is PhaseWork.PACKAGES:
            return last
        if work is PhaseWork.PLANNING:
            last = key

    return None
