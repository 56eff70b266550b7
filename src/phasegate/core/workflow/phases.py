"""What each phase does, as data: who works, what the gate behind it demands."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from phasegate.core.workflow.workflows import split_phase_key


class PhaseWork(StrEnum):
    """How a phase is carried out."""

    # A writer with `plan`, then a critic with `challenge`
    PLANNING = "planning"
    # Work packages with `implement`, each with `review`
    PACKAGES = "packages"
    # `review` of the whole feature
    REVIEW = "review"
    # Commands first, then `review` of what they printed
    COMMANDS = "commands"


class Phase(msgspec.Struct, frozen=True):
    """A phase's work and the evidence its gate demands.

    Documents in the feature's folder, commands by name.
    """

    work: PhaseWork
    artifacts: tuple[str, ...]
    commands: tuple[str, ...] = ()


def _planning(*artifacts: str) -> Phase:
    return Phase(PhaseWork.PLANNING, artifacts)


# Commands are names in a language profile. 12 to 15 have none by default: the user's own, or a
# person's attestation.
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
    """A phase's work; a phase of a user's own is reviewed by default.

    The strictest kind that needs no set-up.
    """
    return PHASES.get(key) or Phase(PhaseWork.REVIEW, (f"REVIEW-{split_phase_key(key)[0]}.md",))


def required_artifacts(
    key: str, phases: tuple[str, ...], custom: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """The documents that must exist before the gate of a phase passes, in the workflow that it
    stands in.

    A person may name others (`own`). Without tasks.md no packages could be made, whatever they
    name.
    """
    if custom is None:
        named = get_phase(key).artifacts
    else:
        named = custom

    needs_tasks = key == _last_planning_phase(phases) and TASKS_FILE not in named
    if needs_tasks:
        return (*named, TASKS_FILE)

    return named


def _last_planning_phase(phases: tuple[str, ...]) -> str | None:
    """The planning phase after which packages are made: it must deliver tasks.md."""
    before: list[str] = []

    for key in phases:
        if get_phase(key).work is PhaseWork.PACKAGES:
            if before:
                return before[-1]
            return None

        if get_phase(key).work is PhaseWork.PLANNING:
            before.append(key)

    return None
