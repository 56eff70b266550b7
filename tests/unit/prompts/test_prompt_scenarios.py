"""The published acceptance scenarios of templates and prompts, one test each, under their own names."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from phasegate import (
    ContextItem,
    TemplateNotFound,
    UnifiedPrompt,
    inject_variables,
    load_system_template,
    parse_answer,
)
from phasegate.prompts.assemble import PromptRequest, build_system_prompt
from phasegate.prompts.templates import SHIPPED_FOLDER

# System Prompt Templates


@pytest.mark.demand("T1.a", "T1.g", "T2.g", "T6.a")
def test_successfully_loading_an_agent_specific_implementation_template(tmp_path: Path) -> None:
    text = load_system_template("CLAUDE", "implement", root=tmp_path)
    assert text == (SHIPPED_FOLDER / "CLAUDE-implement.md").read_text(encoding="utf-8")
    assert "Claude Sonnet" in text
    assert text != load_system_template("BASE", "implement", root=tmp_path)


@pytest.mark.demand("T1.b")
def test_falling_back_to_base_template_when_agent_specific_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not (SHIPPED_FOLDER / "GEMINI-archive.md").exists()
    with caplog.at_level(logging.DEBUG, "phasegate"):
        text = load_system_template("GEMINI", "archive", root=tmp_path)
    assert text == (SHIPPED_FOLDER / "BASE-archive.md").read_text(encoding="utf-8")
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    assert "GEMINI-archive.md" in record.getMessage()
    assert "BASE-archive.md" in record.getMessage()


@pytest.mark.demand("T3.a", "T3.d", "T6.b")
def test_variable_injection_during_template_loading(tmp_path: Path) -> None:
    template = tmp_path / "templates/system/CLAUDE-plan.md"
    template.parent.mkdir(parents=True)
    template.write_text("Project: {{PROJECT_CONTEXT}}.")
    request = PromptRequest("CLAUDE", "plan", "Add login", tmp_path)
    assert "Context not provided" in build_system_prompt(request).text
    (tmp_path / "agentd").mkdir()
    (tmp_path / "agentd/project.md").write_text("Rust, axum, sqlx")
    assert build_system_prompt(request).text == "Project: Rust, axum, sqlx."
    assert inject_variables("{{PROJECT_CONTEXT}}", {"PROJECT_CONTEXT": "Rust"}) == "Rust"


@pytest.mark.demand("T5.a", "T5.b")
def test_instruction_for_outputting_review_markers(tmp_path: Path) -> None:
    text = load_system_template("CODEX", "challenge", root=tmp_path)
    assert "You MUST output <review>PASS</review> or <review>NEEDS_REVISION</review>" in text
    assert "<review>REJECTED</review>" in text
    assert "- REJECTED: " in text
    for verdict in ("PASS", "NEEDS_REVISION", "REJECTED"):
        assert (
            parse_answer(f"Findings: none\n\n<review>{verdict}</review>\n", "challenge").verdict
            == verdict
        )


# Unified Prompt System


@pytest.mark.demand("P2.a", "P5.c")
def test_constructing_a_basic_plan_prompt(tmp_path: Path) -> None:
    template = load_system_template("BASE", "plan", root=tmp_path)
    prompt = UnifiedPrompt(template, [ContextItem("file", "README.md", "# Shop\n")], "Add login")
    xml = prompt.to_xml()
    assert "<instructions>Add login</instructions>" in xml
    assert "<file path='README.md'># Shop\n</file>" in xml
    assert ElementTree.fromstring(xml).findtext("system_prompt") == template
    command = [
        sys.executable,
        "-m",
        "phasegate",
        "prompt",
        "show",
        "--phase",
        "plan",
        "--agent",
        "claude",
        "Add login",
    ]
    shown = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    system = ElementTree.fromstring(shown).findtext("system_prompt") or ""
    assert system.startswith(template[:500])
    assert "<instructions>Add login</instructions>" in shown


@pytest.mark.demand("P2.b", "P2.c")
def test_rendering_context_files() -> None:
    source = 'fn main() {\n    println!("{}", 1 < 2 && true);\n}\n'
    xml = UnifiedPrompt("system", [ContextItem("file", "src/main.rs", source)], "Explain").to_xml()
    assert "<context>\n<file path='src/main.rs'>" in xml
    assert ElementTree.fromstring(xml).findtext("context/file") == source


@pytest.mark.demand("T1.c", "T1.d")
def test_error_handling_for_missing_templates(tmp_path: Path) -> None:
    with pytest.raises(TemplateNotFound) as raised:
        load_system_template("CLAUDE", "invalid-phase", root=tmp_path)
    assert "templates/system/CLAUDE-invalid-phase.md" in raised.value.message
    assert "templates/system/BASE-invalid-phase.md" in raised.value.message
    assert raised.value.exit_code == 2
