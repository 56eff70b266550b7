"""What each role gets in its prompt: the table, its page in the docs, and the limits of the shipped texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.core.detection.one_file import make_one_file_command
from phasegate.core.prompt.agent_part import select_agent_part
from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.prompt.excerpt import (
    drop_empty_sections,
    excerpt_requirements,
    outline_file,
    shorten_diff,
)
from phasegate.core.workflow.phases import PHASES, PhaseWork
from phasegate.engine.steps.prompt_selection import find_need, select_pieces
from phasegate.prompts.agent_files import find_phase_file
from phasegate.prompts.shipped_texts import load_role_needs, render_skeletons
from phasegate.prompts.templates import list_shipped_templates

PAGE = Path(__file__).parents[3] / "docs/reference/prompt-contents.md"
NEEDS = load_role_needs()
ROLES = {
    PhaseWork.PLANNING: ("plan", "challenge"),
    PhaseWork.PACKAGES: ("implement", "review"),
    PhaseWork.REVIEW: ("review", "archive"),
    PhaseWork.COMMANDS: ("review",),
}


def rendered_roles() -> str:
    """The tables of the page, from the data."""
    lines = ["| Part | Content |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in NEEDS.parts.items()]
    for need in NEEDS.needs:
        excerpts = " (passages about the requirements of the package)" if need.excerpts else ""
        lines += [
            f"### {need.role}: {', '.join(need.phases) or 'all other phases'}",
            need.why,
            f"- Documents: {', '.join(need.documents) or 'those of the phase'}{excerpts}",
            f"- Agent file: {need.agent_file or 'none'}",
            "- Limits: "
            + ", ".join(f"{part} {tokens}" for part, tokens in need.max_tokens.items()),
        ]
    return "\n".join(lines)


@pytest.mark.demand("M1.a")
def test_the_page_of_the_docs_says_what_the_table_says() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Parts\n")[2]
    shown = [line for line in page.splitlines() if line.startswith(("| ", "|-", "- ", "###"))]
    wanted = [line for line in rendered_roles().splitlines() if line.startswith(("|", "-", "#"))]
    assert shown == wanted
    assert all(need.why in page for need in NEEDS.needs)


@pytest.mark.demand("M1.a")
def test_every_role_has_an_entry_and_the_shipped_texts_fit_its_limits() -> None:
    templates = {
        (one.name.agent, one.name.phase.value): one.text for one in list_shipped_templates()
    }
    for phase, work in PHASES.items():
        for role in ROLES[work.work]:
            need = NEEDS.find(role, phase)
            assert need.max_tokens.keys() <= NEEDS.parts.keys()
            assert len(templates["BASE", role]) <= need.max_characters("template"), role
            skeletons = render_skeletons(work.artifacts if role == "plan" else ())
            assert len(skeletons) <= need.max_characters("skeletons"), phase
            file = find_phase_file(phase)
            if need.agent_file and file:
                part = select_agent_part(file.text, need.agent_file, phase, NEEDS.agent_file)
                assert part, (role, phase)
                assert len(part) <= need.max_characters("agent_file"), (role, phase)
                assert "SUGGESTED" not in part


@pytest.mark.demand("M1.a")
def test_a_part_is_cut_at_its_limit_with_a_remark_and_a_part_without_one_is_not_given() -> None:
    need = find_need("challenge", "01-requirements")
    long = "A line of the document.\n" * 2_000
    pieces = [
        ContextPiece(PieceKind.ARTIFACT, "request.md", "Add login\n"),
        ContextPiece(PieceKind.ARTIFACT, "plan.md", "Not built on\n"),
        ContextPiece(PieceKind.REVISED, "spec.md", long),
        ContextPiece(PieceKind.REVISED, "change.diff", "diff --git a/x b/x\n"),
    ]
    given = {piece.name: piece.content for piece in select_pieces(need, pieces)}
    assert given.keys() == {"request.md", "spec.md"}
    assert len(given["spec.md"]) < need.max_characters("documents") + 200
    assert "Cut here, after line" in given["spec.md"]


@pytest.mark.demand("M1.a")
def test_an_excerpt_has_scenarios_rows_and_items_of_the_package_but_not_its_requirements() -> None:
    text = (
        "## Overview\n\nA number has digits.\n\n"
        '## Requirements\n\n<!-- sk:fr id="FR-A-001" -->\n- One\n<!-- /sk:fr -->\n'
        '<!-- sk:fr id="FR-A-002" -->\n- Other than FR-A-001\n<!-- /sk:fr -->\n\n'
        "### Scenario: one (FR-A-001)\n\n- WHEN x\n- THEN y\n\n### Scenario: two (FR-A-0012)\n\n- WHEN z\n\n"
        "## Cases\n\n| Case | For |\n|---|---|\n| T1 | FR-A-001 |\n| T2 | FR-A-0012 |\n"
    )
    excerpt = excerpt_requirements(text, ["FR-A-001"])
    assert excerpt == (
        "## Overview\n\nA number has digits.\n\n"
        "### Scenario: one (FR-A-001)\n\n- WHEN x\n- THEN y\n\n"
        "## Cases\n\n| Case | For |\n|---|---|\n| T1 | FR-A-001 |\n"
    )
    trace = "## Path\n\n| a.py:3 |\n\n## Root Cause\n\nA missing check.\n"
    assert excerpt_requirements(trace, ["FR-A-001"]) == "## Root Cause\n\nA missing check.\n"
    assert excerpt_requirements(text, []) == ""


def test_lists_of_commands_and_folders_are_not_given_twice_but_the_words_of_the_user_stay() -> None:
    listed = "## Commands\n\n- `mypy`\n- `tox`\n\n## Layout\n\n- `src/`\n"
    assert drop_empty_sections(f"# Shop\n\n{listed}") == "# Shop\n"
    edited = "# Shop\n\n## Commands\n\n- `make up` first: the tests need the database\n"
    assert drop_empty_sections(edited) == edited


def test_headings_without_text_are_dropped_and_others_stay() -> None:
    text = "# Shop\n\nSells.\n\n## Commands\n\n<!-- How is it built? -->\n\n## Rules\n\n### One\n\nNo ORM.\n"
    assert drop_empty_sections(text) == "# Shop\n\nSells.\n\n## Rules\n\n### One\n\nNo ORM.\n"
    # A comment beside text is for the person who fills in the page
    assert drop_empty_sections("## Rules\n\n- No ORM.\n<!-- Say\nmore. -->\n") == (
        "## Rules\n\n- No ORM.\n"
    )


def test_an_outline_has_the_declarations_with_their_lines() -> None:
    code = (
        "import os\n\nLIMIT = 3\n\n\nclass Shop:\n    def sell(self) -> None:\n        total = 1\n"
    )
    assert (
        outline_file(code, 500) == "3: LIMIT = 3\n6: class Shop:\n7:     def sell(self) -> None:\n"
    )
    assert outline_file(code, 20) == "3: LIMIT = 3\n...\n"


def test_an_outline_of_a_document_has_its_headings() -> None:
    text = "# Shop\n\nSells.\n\n## Prices\n\nclass Low: no heading\n"
    assert outline_file(text, 500, "docs/shop.md") == "1: # Shop\n5: ## Prices\n"


def test_an_outline_has_methods_that_no_keyword_declares_and_no_calls() -> None:
    code = (
        "export class Option {\n  constructor(flags) {\n    if (flags) {\n      run(() => {\n"
        "    }\n  static async env(name = 1): Promise<void> {\n    } else if (x) {\n  #mark() {\n"
    )
    assert outline_file(code, 500) == (
        "1: export class Option {\n2:   constructor(flags) {\n"
        "6:   static async env(name = 1): Promise<void> {\n8:   #mark() {\n"
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python3 -m pytest -rfE", "python3 -m pytest tests/a.js"),
        ("npm exec -c 'node --test && tsc -p x.json'", "node --test tests/a.js"),
        ("npm exec -c 'xo && ava && tsd'", "npx ava tests/a.js"),
        ("npm exec -c 'tsc -p x.json'", ""),
        ("pytest | tee log", ""),
    ],
)
def test_the_command_for_one_file_is_found_in_a_line_of_several(
    command: str, expected: str
) -> None:
    assert make_one_file_command(command, "tests/a.js") == expected


def test_a_long_diff_keeps_whole_files_and_names_the_others() -> None:
    small, large = (
        f"diff --git a/{name} b/{name}\n" + "+x\n" * lines for name, lines in (("a", 2), ("b", 90))
    )
    short = shorten_diff(large + small, 100)
    assert short == (small, ("b",))
    assert shorten_diff(large + small, 10_000) == (large + small, ())
