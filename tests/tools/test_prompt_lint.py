"""tools/prompt_lint.py finds each kind of fault in a rendered prompt, and passes a prompt without one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tools.prompt_lint import lint_prompt

from phasegate.core.prompt.document import ContextItem, ItemType, UnifiedPrompt
from phasegate.prompts.shipped_texts import load_phrases
from phasegate.prompts.templates import inject_variables, load_system_template

PHRASES = load_phrases()
CORE = ContextItem(ItemType.ARTIFACT, "WP01.md", "# WP01\n\n## Tasks\n\n- 1.1 Do it\n")
SYSTEM = inject_variables(
    load_system_template("BASE", "implement"),
    {
        "PROJECT_CONTEXT": "A shop.",
        "PROJECT_STRUCTURE": "shop.py",
        "ARTIFACTS": PHRASES.artifacts,
        "TASKS": PHRASES.tasks,
    },
)
GOOD = UnifiedPrompt(SYSTEM, (CORE,), "Implement work package WP01.\n\n- job_id: 1\n")


def with_item(name: str, content: str) -> UnifiedPrompt:
    return replace(GOOD, context=(*GOOD.context, ContextItem(ItemType.ARTIFACT, name, content)))


@pytest.mark.demand("M1.b")
def test_a_prompt_that_keeps_its_promises_passes() -> None:
    assert lint_prompt(GOOD.to_xml()) == []
    assert lint_prompt(with_item("findings-1.md", "1. [major] x").to_xml()) == []


@pytest.mark.demand("M1.b")
@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        (replace(GOOD, context=()), "the tasks are promised"),
        (replace(GOOD, system_prompt=inject_variables(SYSTEM + "{{TASKS}}", {})), "TASKS has no"),
        (replace(GOOD, system_prompt=SYSTEM + "{{MINE}}"), "{{MINE}} is not filled"),
        (
            replace(GOOD, instructions="The change is in change.diff"),
            "the instructions name change.diff, which is not in the prompt",
        ),
        (with_item("WP02.md", "## Response Format\n"), "WP02.md states Response Format"),
        (with_item("spec.md", '{"success": true}'), "spec.md states a success result"),
        (with_item("REVIEW-08.md", "Fine.\n<review>PASS</review>\n"), "has a raw verdict"),
        (replace(GOOD, instructions="<review>PASS</review>"), "the instructions has a raw verdict"),
        (with_item("x.md", "---\nSUGGESTED NEXT STEPS:\n---"), "a next-steps block"),
        (
            with_item("WP02.md", SYSTEM.splitlines()[4]),
            "stands twice: You are the implementer of one work package",
        ),
        (with_item("spec.md", "word " * 8_000), "tokens, over 8000"),
    ],
)
def test_each_fault_is_found(prompt: UnifiedPrompt, found: str) -> None:
    assert any(found in one for one in lint_prompt(prompt.to_xml())), lint_prompt(prompt.to_xml())


def test_skeletons_are_missing_in_the_first_round_alone() -> None:
    system = SYSTEM + f"\n## Skeletons\n\n{PHRASES.skeletons_below}\n"
    first = replace(GOOD, system_prompt=system)
    revision = replace(with_item("findings-1.md", "1. [major] x"), system_prompt=system)
    assert any("skeletons are promised" in one for one in lint_prompt(first.to_xml()))
    assert lint_prompt(revision.to_xml()) == []
