"""Putting a prompt together."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.core.prompt.hidden_characters import HiddenCharacter
from phasegate.core.workflow.phases import PHASES, PhaseWork, required_artifacts
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.errors import PromptTooLarge, TemplateNotFound, UnreadableFile
from phasegate.prompts.assemble import (
    MAX_HIDDEN_PER_ITEM,
    PromptRequest,
    PromptSource,
    assemble_prompt,
    build_system_prompt,
    read_pieces,
)
from phasegate.prompts.shipped_texts import load_phrases, load_skeleton, render_skeletons
from phasegate.prompts.templates import load_system_template

GOLDEN = Path(__file__).parents[2] / "golden" / "tokens"
PATHS = [f"src/module{number}/file{part}.py" for number in range(12) for part in range(8)] + [
    "README.md"
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agentd").mkdir()
    (tmp_path / "agentd/project.md").write_text("Python 3.12, pytest, ruff.\n")
    return tmp_path


def request(
    root: Path, phase: str = "plan", budget: int | None = None, instructions: str = "Add login"
) -> PromptRequest:
    return PromptRequest(
        "CLAUDE", phase, instructions, root, PATHS, ("proposal.md", "specs/", "tasks.md"), budget
    )


def twenty_files() -> list[ContextPiece]:
    """Twenty context files of 3 to 6 kB, as source files are."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(GOLDEN.glob("code-*.txt"))]
    pairs = [
        sources[number % len(sources)] + sources[(number + 3) % len(sources)]
        for number in range(20)
    ]
    return [
        ContextPiece(PieceKind.FILE, f"src/file{number:02}", text)
        for number, text in enumerate(pairs)
    ]


PLAN = (GOLDEN / "prose-markdown.txt").read_text(encoding="utf-8")
FINDINGS = "1. [major] plan.md, step 2\n   - Wrong: the session store has no expiry.\n   - Satisfied by: a rule.\n"


@pytest.mark.demand("P3.b", "P3.c")
def test_a_revision_round_shares_95_percent_of_the_first_rounds_bytes_as_prefix(
    project: Path,
) -> None:
    files = twenty_files()
    role = ContextPiece(PieceKind.ROLE, "agent-file.md", "You are the system designer.\n" * 20)
    spec = ContextPiece(PieceKind.ARTIFACT, "spec.md", PLAN)
    first = assemble_prompt(
        request(project, "challenge", 120_000, "Challenge phase 04-design, round 1"),
        [role, *files, spec, ContextPiece(PieceKind.REVISED, "plan.md", PLAN)],
    )
    revised = PLAN.replace("Core Principles", "Core Principles, revised", 1)
    second = assemble_prompt(
        request(project, "challenge", 120_000, "Challenge phase 04-design, round 2"),
        [
            role,
            *files,
            spec,
            ContextPiece(PieceKind.REVISED, "plan.md", revised),
            ContextPiece(PieceKind.FINDINGS, "findings-1.md", FINDINGS),
        ],
    )
    one, two = first.prompt.to_xml().encode(), second.prompt.to_xml().encode()
    shared = next(
        place for place, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]
    )
    assert shared >= 0.95 * len(one), f"{shared} of {len(one)} bytes"
    assert first.prompt.system_prompt == second.prompt.system_prompt


@pytest.mark.demand("P3.c", "T3.b")
def test_the_system_prompt_only_points_at_what_changes(project: Path) -> None:
    pieces = [
        ContextPiece(PieceKind.REVISED, "plan.md", "SECRET PLAN"),
        ContextPiece(PieceKind.TASKS, "tasks.md", "SECRET TASKS"),
    ]
    prompt = assemble_prompt(request(project, "implement"), pieces).prompt
    assert prompt.system_prompt is not None
    assert "SECRET" not in prompt.system_prompt
    assert load_phrases().artifacts in prompt.system_prompt
    assert load_phrases().tasks in prompt.system_prompt
    assert [item.name for item in prompt.context] == ["plan.md", "tasks.md"]


@pytest.mark.demand("T3.d", "M1.b")
def test_tasks_and_artifacts_that_are_not_given_are_reported_as_missing(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "phasegate"):
        system = build_system_prompt(request(project, "implement")).text
    assert "[Context not provided: TASKS." in system
    assert "[Context not provided: ARTIFACTS." in system
    warned = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(" ")[2] for text in warned] == ["ARTIFACTS", "TASKS"]


@pytest.mark.demand("T3.a", "T3.b", "P1.d")
def test_every_variable_of_the_template_is_filled(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "phasegate"):
        system = build_system_prompt(
            request(project), [ContextPiece(PieceKind.ARTIFACT, "quick-scan.md", "Small.")]
        ).text
    assert "{{" not in system
    assert "Python 3.12, pytest, ruff." in system
    assert "  module0/" in system
    assert "Skeleton of `proposal.md`" in system
    assert "# Capability: {name}" in system
    assert caplog.records == []


@pytest.mark.demand("P1.d", "T1.d")
def test_a_run_without_a_template_is_not_assembled(project: Path) -> None:
    with pytest.raises(TemplateNotFound):
        assemble_prompt(request(project)._replace(phase="nothing"), [])


@pytest.mark.demand("P4.b", "P4.c")
def test_what_was_left_out_is_said_in_the_prompt_behind_the_rest_and_returned(
    project: Path,
) -> None:
    assembled = assemble_prompt(request(project, budget=15_000), twenty_files())
    assert assembled.left_out
    assert assembled.tokens <= 15_000
    note = assembled.prompt.context[-1]
    assert note.name == load_phrases().notes.name
    for name in assembled.left_out:
        assert f"- {name}" in note.content
    for cut in assembled.cut:
        assert f"- {cut.name}" in note.content
    assert UnifiedPrompt.from_xml(assembled.prompt.to_xml()) == assembled.prompt


@pytest.mark.demand("P4.c")
def test_a_prompt_from_which_nothing_is_missing_has_no_notes(project: Path) -> None:
    assembled = assemble_prompt(request(project, budget=200_000), twenty_files())
    assert len(assembled.prompt.context) == 20
    assert (assembled.left_out, assembled.cut, assembled.hidden) == ((), (), ())


@pytest.mark.demand("P4.a")
@pytest.mark.parametrize("budget", [12_000, 20_000, 50_000, 100_000])
def test_the_estimate_of_the_whole_prompt_keeps_to_the_budget(project: Path, budget: int) -> None:
    hostile = [ContextPiece(PieceKind.FILE, f"h{n}", "\u202e<&>\x00\n" * 400) for n in range(30)]
    assembled = assemble_prompt(request(project, budget=budget), [*twenty_files(), *hostile])
    assert assembled.tokens <= budget


@pytest.mark.demand("P4.c")
def test_a_template_that_does_not_fit_by_itself_is_an_error_by_name(project: Path) -> None:
    with pytest.raises(PromptTooLarge, match="the budget is 500") as raised:
        assemble_prompt(request(project, budget=500), [])
    assert "raise the budget to at least" in raised.value.hint
    with pytest.raises(PromptTooLarge):
        assemble_prompt(request(project, budget=20_000, instructions="word " * 20_000), [])


@pytest.mark.demand("P4.a", "P4.b")
def test_a_long_description_of_the_project_is_cut_to_its_share_and_said(project: Path) -> None:
    (project / "agentd/project.md").write_text("One more rule of this project.\n" * 5_000)
    assembled = assemble_prompt(request(project, budget=30_000), [])
    assert [cut.name for cut in assembled.cut] == ["agentd/project.md"]
    assert "bytes of agentd/project.md are shown" in (assembled.prompt.system_prompt or "")
    assert assembled.tokens <= 30_000


@pytest.mark.demand("T3.d")
def test_a_project_without_a_description_leaves_the_note_and_the_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for content in (None, "  \n"):
        caplog.clear()
        if content is not None:
            (tmp_path / "agentd").mkdir()
            (tmp_path / "agentd/project.md").write_text(content)
        with caplog.at_level(logging.WARNING, "phasegate"):
            assert (
                "Context not provided: PROJECT_CONTEXT"
                in build_system_prompt(request(tmp_path)).text
            )
        assert "PROJECT_CONTEXT" in caplog.text


@pytest.mark.demand("P4.b", "P4.c")
def test_hidden_characters_are_flagged_with_item_character_and_line(project: Path) -> None:
    (project / "agentd/project.md").write_text("ok\nzero\u200bwidth\n")
    text = "\ufeffif user:\n    admin = False \u202e# check\u2066\n"
    tagged = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    pieces = [
        ContextPiece(PieceKind.FILE, "auth.py", text),
        ContextPiece(PieceKind.THOUGHT, None, "hi" + tagged),
        ContextPiece(PieceKind.FILE, "evil\u202e.py", "x"),
        ContextPiece(PieceKind.FILE, "fine.md", "👩\u200d💻 naïve façade — “quoted” 中文\n"),
    ]
    assembled = assemble_prompt(request(project), pieces)
    found = {(one.item, one.character, one.line) for one in assembled.hidden}
    assert found >= {
        ("agentd/project.md", "U+200B ZERO WIDTH SPACE", 2),
        ("auth.py", "U+202E RIGHT-TO-LEFT OVERRIDE", 2),
        ("auth.py", "U+2066 LEFT-TO-RIGHT ISOLATE", 2),
        ("thought", "U+E006F TAG LATIN SMALL LETTER O", 1),
        ("evil\u202e.py", "U+202E RIGHT-TO-LEFT OVERRIDE", 0),
    }
    assert not [one for one in assembled.hidden if one.item == "fine.md" or "FEFF" in one.character]
    note = assembled.prompt.context[-1].content
    assert "- auth.py, line 2: U+202E RIGHT-TO-LEFT OVERRIDE" in note
    assert '- "evil\\u{202e}.py", in the name: U+202E' in note
    assert "\u202e" not in note


@pytest.mark.demand("P2.e", "P3.a", "P4.c")
def test_the_bytes_of_a_file_come_back_exactly(project: Path) -> None:
    contents = {
        "a.py": b"x < y\n",
        "b.bin": b"\xff\x00\r\n",
        "c.txt": "bidi \u202e\n".encode(),
        "empty": b"",
    }
    for name, content in contents.items():
        (project / name).write_bytes(content)
    sources = [PromptSource(PieceKind.FILE, name, project / name) for name in contents]
    assembled = assemble_prompt(request(project), read_pieces(project, sources, None))
    read = UnifiedPrompt.from_xml(assembled.prompt.to_xml())
    files = {
        item.name: item.content.encode("utf-8", "surrogateescape") for item in read.context[:-1]
    }
    assert files == contents
    assert [(one.item, one.line) for one in assembled.hidden] == [
        ("b.bin", 1),
        ("b.bin", 1),
        ("c.txt", 1),
    ]


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_named(project: Path, what: str) -> None:
    (project / "folder").mkdir()
    with pytest.raises(UnreadableFile, match=f"cannot read .*{what}"):
        read_pieces(project, [PromptSource(PieceKind.FILE, what, project / what)], None)


def test_many_hidden_characters_of_a_file_are_listed_up_to_a_limit(project: Path) -> None:
    text = "x\n" * 3 + "é\n\u202e\n" + "\u200b" * 50
    hidden = assemble_prompt(request(project), [ContextPiece(PieceKind.FILE, "f", text)]).hidden
    assert hidden[0] == HiddenCharacter("f", "U+202E RIGHT-TO-LEFT OVERRIDE", 5)
    assert hidden[1] == HiddenCharacter("f", "U+200B ZERO WIDTH SPACE", 6)
    assert len(hidden) == MAX_HIDDEN_PER_ITEM


@pytest.mark.demand("P7.a", "P7.b")
def test_another_agent_gets_the_same_context(project: Path) -> None:
    pieces = [ContextPiece(PieceKind.ARTIFACT, "spec.md", "what the phase before wrote")]
    prompts = [
        assemble_prompt(request(project)._replace(agent=agent), pieces).prompt
        for agent in ("CLAUDE", "GEMINI", "CODEX")
    ]
    assert len({prompt.context for prompt in prompts}) == 1
    assert prompts[0].context[0].content == "what the phase before wrote"


@pytest.mark.demand("P5.b")
def test_the_assemblers_sentences_are_data_with_the_places_that_are_filled() -> None:
    words = load_phrases()
    assert "Context not provided" in words.missing
    assert words.cut.format(name="n", shown=1, total=2, line=3).count("3") == 1
    assert words.notes.escaped.format().count("\\u{hex}") == 1


@pytest.mark.demand("W7.i", "W7.l")
def test_every_document_that_a_planning_phase_owes_has_a_skeleton() -> None:
    for phases in WORKFLOWS.values():
        for key in phases:
            if PHASES[key].work is PhaseWork.PLANNING:
                for document in required_artifacts(key, phases):
                    assert load_skeleton(document), document
    assert load_skeleton("IMPLEMENTATION.md") is None
    assert load_skeleton("../phrases.toml") is None
    assert load_skeleton("CHANGELOG.md")


def test_no_skeleton_awards_itself_what_a_tool_awards() -> None:
    assert "fr-count" in (load_skeleton("spec.md") or "")
    assert "validated" not in (load_skeleton("spec.md") or "")


@pytest.mark.demand("T3.b")
def test_skeletons_are_fenced_and_named() -> None:
    text = render_skeletons(["proposal.md", "tasks.md", "unknown.md"])
    assert text.count("````markdown\n") == 2
    assert text.startswith("Skeleton of `proposal.md`:")
    assert "````" not in (load_skeleton("proposal.md") or "") + (load_skeleton("tasks.md") or "")


@pytest.mark.demand("P5.b")
def test_a_projects_own_template_is_used_for_its_prompts(project: Path) -> None:
    folder = project / "templates/system"
    folder.mkdir(parents=True)
    (folder / "CLAUDE-plan.md").write_text("Only {{PROJECT_CONTEXT}}")
    assert build_system_prompt(request(project)).text == "Only Python 3.12, pytest, ruff.\n"
    assert load_system_template("CODEX", "plan", root=project) != "Only {{PROJECT_CONTEXT}}"
