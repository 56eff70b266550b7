"""What `template show`, `template lint` and `prompt show` give, clause by clause of T1 to T6 and P1, P2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.dispatch_project import Done
from support.entry import phasegate
from support.git_project import make_repository

VERDICTS = {"PASS", "NEEDS_REVISION", "NEEDS_CHANGES", "REJECTED", "MAJOR_ISSUES"}
ALLOWED = {
    "plan": {"PASS", "NEEDS_REVISION"},
    "challenge": {"PASS", "NEEDS_REVISION", "REJECTED"},
    "implement": set[str](),
    "review": {"PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"},
    "archive": {"PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"},
}
CONTEXT = ("PROJECT_CONTEXT", "PROJECT_STRUCTURE", "ARTIFACTS")
DIRECTIVES = {
    "plan": ("proposal.md", "specs/", "tasks.md", "Mermaid", "JSON Schema", "{{SKELETON}}"),
    "challenge": ("review", "consisten", "gap", "feasib|technical"),
    "implement": ("Task-driven", "test", "IMPLEMENTATION.md", "{{TASKS}}"),
    "review": ("Run .*test|test.* run", "secur", "quality"),
    "archive": ("CHANGELOG.md", "spec", "leftover|tidy|clean"),
}
# Where its output goes; a challenge and a review write none: their answer is the output.
OUTPUTS = {"plan": "tasks.md", "implement": "Files in the work scope", "archive": "CHANGELOG.md"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_repository(tmp_path / "repo")
    return tmp_path / "repo"


def own_template(project: Path, name: str, text: str) -> Path:
    path = project / "templates/system" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def shown(project: Path, agent: str, *arguments: str) -> Done:
    return phasegate(
        "prompt", "show", "--phase", "plan", "--agent", agent, *arguments, "Go", cwd=project
    )


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()


@pytest.mark.demand("T2.b", "T2.c", "T2.d", "T2.e", "T2.f")
def test_each_shipped_template_has_its_sections_its_directives_and_its_answers(
    project: Path,
) -> None:
    rows = phasegate("template", "list", "--json", cwd=project).json
    assert {row["phase"] for row in rows} == ALLOWED.keys()
    for row in rows:
        agent, phase = row["agent"], row["phase"]
        text = phasegate("template", "show", agent, phase, cwd=project).stdout
        for title in (
            "Identity & Role",
            "Core Principles",
            "Workflow Context",
            "Inputs",
            "How to Be Sure",
        ):
            assert section(text, title), (agent, phase, title)
        for name in CONTEXT:
            assert f"{{{{{name}}}}}" in text, (agent, phase)
        for directive in DIRECTIVES[phase]:
            assert re.search(directive, text, re.IGNORECASE), (agent, phase, directive)
        assert OUTPUTS.get(phase, "") in section(text, "Outputs"), (agent, phase)
        asked = {*re.findall("<review>(.*?)</review>", text)}
        assert asked == ALLOWED[phase], (agent, phase)
        assert not {*re.findall(r"\b[A-Z_]+\b", text)} & (VERDICTS - ALLOWED[phase]), (agent, phase)


@pytest.mark.demand("T2.g", "T5.a", "T5.b")
def test_claude_and_codex_have_instructions_of_their_own(project: Path) -> None:
    implement = [
        phasegate("template", "show", agent, "implement", cwd=project).stdout
        for agent in ("claude", "base")
    ]
    assert ["Claude Sonnet" in text for text in implement] == [True, False]
    text = phasegate("template", "show", "codex", "challenge", cwd=project).stdout
    assert "You MUST output <review>PASS</review> or <review>NEEDS_REVISION</review>" in text
    assert "<review>REJECTED</review>" in text
    assert re.search(r"^- REJECTED: .{20,}", text, re.MULTILINE)


PREFIXES = {
    "claude_code": "CLAUDE",
    "codex": "CODEX",
    "gemini": "GEMINI",
    "cursor": "CURSOR",
    "opencode": "OPENCODE",
    "qwen": "QWEN",
    "copilot": "COPILOT",
    "acp": "ACP",
    "command": "COMMAND",
    "scripted": "SCRIPTED",
}


@pytest.mark.demand("T1.e", "T1.f", "P1.d")
def test_an_agents_template_follows_from_its_harness_or_its_own_key(project: Path) -> None:
    config = "".join(
        f'[agents.mine-{harness}]\nharness = "{harness}"\ncommand = ["x"]\n[agents.set-{harness}]\n'
        f'harness = "{harness}"\ncommand = ["x"]\ntemplate = "SHOP"\n'
        for harness in PREFIXES
    )
    (project / "phasegate.toml").write_text(config)
    base = phasegate("template", "show", "base", "plan", cwd=project).stdout
    assert phasegate("template", "show", "set-codex", "plan", cwd=project).stdout == base, (
        "it has none of its own yet"
    )
    for prefix in (*PREFIXES.values(), "SHOP"):
        own_template(project, f"{prefix}-plan.md", f"This is {prefix}.")
    for harness, prefix in PREFIXES.items():
        for agent, due in ((f"mine-{harness}", prefix), (f"set-{harness}", "SHOP")):
            done = shown(project, agent)
            assert done.code == 0, (agent, done.stderr)
            assert (
                ElementTree.fromstring(done.stdout).findtext("system_prompt") == f"This is {due}."
            )
    nobody = shown(project, "nobody")
    assert (nobody.code, nobody.stdout) == (2, ""), "without a system prompt there is no prompt"
    assert "TemplateNotFound" in nobody.stderr


@pytest.mark.demand("T3.e")
def test_an_unknown_placeholder_stays_and_is_reported(project: Path) -> None:
    own_template(project, "CLAUDE-plan.md", "{{NAMES}} of {{PROJECT_CONTEXT}}")
    (project / "agentd").mkdir()
    (project / "agentd/project.md").write_text("A shop")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "phasegate",
            "prompt",
            "show",
            "--phase",
            "plan",
            "--agent",
            "claude",
            "Go",
        ],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ElementTree.fromstring(done.stdout).findtext("system_prompt") == "{{NAMES}} of A shop"
    assert "NAMES" in done.stderr
    assert "PROJECT_CONTEXT" not in done.stderr


@pytest.mark.demand("T4.d", "T2.f")
def test_the_linter_misses_each_marker_that_is_not_asked_for_and_finds_each_foreign_one(
    project: Path,
) -> None:
    for phase, allowed in ALLOWED.items():
        text = phasegate("template", "show", "base", phase, cwd=project).stdout
        path = str(own_template(project, f"BASE-{phase}.md", text))
        assert phasegate("template", "lint", path, cwd=project).code == 0, phase
        tasks = [f'<task_status id="X.Y">{word}</task_status>' for word in ("COMPLETED", "FAILED")]
        for marker in [f"<review>{word}</review>" for word in allowed] or tasks:
            assert marker in text, (phase, marker)
            own_template(project, f"BASE-{phase}.md", text.replace(marker, ""))
            found = phasegate("template", "lint", "--json", path, cwd=project)
            assert found.code == 1
            assert "missing-marker" in [one["code"] for one in found.json["findings"]], (
                phase,
                marker,
            )
        for foreign in VERDICTS - allowed:
            own_template(project, f"BASE-{phase}.md", f"{text}\n<review>{foreign}</review>\n")
            found = phasegate("template", "lint", "--json", path, cwd=project)
            assert [one["code"] for one in found.json["findings"]] == ["foreign-verdict"] * (
                1 if allowed else 2
            ), (*(phase, foreign),)


@pytest.mark.demand("P2.c")
def test_a_plain_parser_sees_every_character_that_xml_can_carry(project: Path) -> None:
    carried = [
        0x9,
        0xA,
        *range(0x20, 0xD800),
        *range(0xE000, 0xFFFE),
        *range(0x10000, 0x10FFFF, 997),
    ]
    text = "]]> &amp; <![CDATA[ </file> '\" \\ " + "".join(map(chr, carried))
    (project / "all.txt").write_bytes(text.encode())
    done = shown(project, "claude", "--file", "all.txt")
    assert ElementTree.fromstring(done.stdout).findtext("context/file") == text


PROGRAM = """
import inspect, json
from phasegate import UnifiedPrompt, inject_variables, load_system_template
print(json.dumps({
    "load": [*inspect.signature(load_system_template).parameters][:2],
    "inject": [*inspect.signature(inject_variables).parameters],
    "text": load_system_template("CLAUDE", "implement"),
    "filled": inject_variables("{{PROJECT_CONTEXT}} {{ODD}}", {"PROJECT_CONTEXT": "Rust"}),
    "prompt": UnifiedPrompt(None, [], "Go").to_xml(),
}))
"""


@pytest.mark.demand("T6.a", "T6.b", "P1.c")
def test_a_program_of_ones_own_finds_the_published_functions(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = json.loads(done.stdout)
    assert (said["load"], said["inject"]) == (["agent", "phase"], ["template", "context"])
    assert said["text"] == phasegate("template", "show", "claude", "implement", cwd=project).stdout
    assert said["filled"] == "Rust {{ODD}}"
    assert ElementTree.fromstring(said["prompt"]).find("system_prompt") is None
