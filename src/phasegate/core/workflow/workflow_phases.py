"""The phases of each workflow, in order, with their keys and names.

Imports nothing, so that the hook stays fast.
"""

from __future__ import annotations

# Phases in the order of work, not of their numbers: local tests come before integration tests.
WORKFLOWS: dict[str, tuple[str, ...]] = {
    "feature": (
        "00-quick-scan",
        "01-requirements",
        "02-impact-analysis",
        "03-architecture",
        "04-design",
        "05-test-strategy",
        "06-implementation",
        "11-local-testing",
        "07-testing",
        "10-cicd",
        "08-code-review",
    ),
    "fix": (
        "01-requirements",
        "02-tracing",
        "05-test-strategy",
        "06-implementation",
        "11-local-testing",
        "07-testing",
        "10-cicd",
        "08-code-review",
    ),
    "test-run": ("11-local-testing", "07-testing"),
    "test-generate": (
        "05-test-strategy",
        "06-implementation",
        "11-local-testing",
        "07-testing",
        "08-code-review",
    ),
    "full-lifecycle": (
        "01-requirements",
        "03-architecture",
        "04-design",
        "05-test-strategy",
        "06-implementation",
        "11-local-testing",
        "07-testing",
        "08-code-review",
        "09-validation",
        "10-cicd",
        "12-remote-build",
        "13-test-deploy",
        "14-production",
        "15-operations",
    ),
    "upgrade": ("16-upgrade-plan", "16-upgrade-execute", "08-code-review"),
    "quick": ("01-requirements", "06-implementation", "08-code-review"),
}

# The subject that the user describes at the start; None if no description is needed.
DESCRIPTION_NOUNS: dict[str, str | None] = {
    "feature": "feature",
    "fix": "bug",
    "full-lifecycle": "project",
    "upgrade": "upgrade target",
    "test-run": None,
    "test-generate": None,
}
DEFAULT_NOUN = "feature"

# A run of the existing tests changes nothing, so nothing is merged.
UNMERGED_WORKFLOWS = frozenset({"test-run"})


def is_printable(text: object) -> bool:
    """Return whether a text can be used in a block.

    It must be a non-empty string of printable ASCII without surrounding blanks.
    """
    return (
        isinstance(text, str)
        and text.isascii()
        and text.isprintable()
        and text != ""
        and text == text.strip()
    )


def split_phase_key(key: str) -> tuple[str, str]:
    """Split a phase key: `02-impact-analysis` -> `02`, `impact-analysis`."""
    number, _, name = key.partition("-")
    return number, name


def is_phase_named(key: str, text: str) -> bool:
    """Return True if a user's text means this phase: its key, its name or its number (1 or 01)."""
    return text.lower().zfill(2) in (key, *split_phase_key(key))


def resolve_display_name(key: str) -> str:
    """Return the display name: `02-impact-analysis` -> `Phase 02 - Impact Analysis`."""
    number, name = split_phase_key(key)
    if not name:
        return f"Phase {key}"
    title = " ".join(word[:1].upper() + word[1:] for word in name.split("-"))
    return f"Phase {number} - {title}"


def gate_name(key: str) -> str:
    """Return the name of the gate after a phase: `08-code-review` -> `GATE-08`."""
    return f"GATE-{split_phase_key(key)[0]}"


def workflow_noun(workflow_type: str, custom_noun: str | None = None) -> str | None:
    """Return the subject that the user describes at the start of a workflow, or None if none."""
    if workflow_type in DESCRIPTION_NOUNS:
        return DESCRIPTION_NOUNS[workflow_type]
    return custom_noun or DEFAULT_NOUN


def find_phases_problem(phases: tuple[str, ...]) -> str | None:
    """Return the problem with a list of phases, or None if there is none."""
    if not phases:
        return "a workflow needs at least one phase"

    for key in phases:
        number, name = split_phase_key(key)
        if not is_printable(key) or not number.isalnum() or not name:
            return f"{key!r} is not a phase key; write it like 06-implementation"

    duplicates = [key for position, key in enumerate(phases) if key in phases[:position]]
    if duplicates:
        return f"phase {duplicates[0]} is listed twice"

    return None
