"""Templates: finding, filling, describing, linting."""

from __future__ import annotations

import logging
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from phasegate import inject_variables, load_system_template
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.answer.vocabulary import ALLOWED_VERDICTS
from phasegate.core.prompt.template import (
    TEMPLATE_VARIABLES,
    AgentPhase,
    TemplateName,
    build_metadata,
    fill_template,
    parse_file_name,
    resolve_template_prefix,
)
from phasegate.core.prompt.template_lint import (
    MANDATORY_VARIABLES,
    REQUIRED_SECTIONS,
    lint_template,
)
from phasegate.prompts.templates import (
    SHIPPED_FOLDER,
    find_project_root,
    find_template,
    list_shipped_templates,
)
from support.growth import assert_grows_no_faster_than_its_input
from support.prompt_schemas import SYSTEM_TEMPLATE_METADATA

GOOD_PLAN = """# Planning

## Identity & Role
## Core Principles
## Workflow Context
{{PROJECT_CONTEXT}} {{PROJECT_STRUCTURE}} {{ARTIFACTS}} {{SKELETON}}
Reason in <thought>.
<review>PASS</review>
<review>NEEDS_REVISION</review>
"""
GOOD_IMPLEMENT = """# Work

## Identity & Role
## Core Principles
## Workflow Context
{{PROJECT_CONTEXT}} {{PROJECT_STRUCTURE}} {{ARTIFACTS}} {{TASKS}}
Reason in <thought>.
<task_status id="X.Y">COMPLETED</task_status>
<task_status id="X.Y">FAILED</task_status>
"""


def put(root: Path, name: str, text: str) -> None:
    (root / "templates/system").mkdir(parents=True, exist_ok=True)
    (root / "templates/system" / name).write_text(text)


def codes(phase: str, text: str) -> list[str]:
    return [finding.code for finding in lint_template(AgentPhase(phase), text)]


@pytest.mark.demand("T1.g")
def test_the_project_comes_before_the_package_and_the_agent_before_base(tmp_path: Path) -> None:
    assert (
        find_template("CLAUDE", "implement", root=tmp_path).path
        == SHIPPED_FOLDER / "CLAUDE-implement.md"
    )
    put(tmp_path, "BASE-implement.md", "project's base")
    assert load_system_template("CLAUDE", "implement", root=tmp_path) == "project's base"
    put(tmp_path, "CLAUDE-implement.md", "project's own")
    assert load_system_template("CLAUDE", "implement", root=tmp_path) == "project's own"
    assert load_system_template("CODEX", "implement", root=tmp_path) == "project's base"
    assert load_system_template("CURSOR", "plan", root=tmp_path) == load_system_template(
        "BASE", "plan", root=tmp_path
    )


@pytest.mark.demand("T1.a", "T1.f")
def test_a_configured_prefix_without_a_template_of_its_own_takes_base(tmp_path: Path) -> None:
    found = find_template("AIDER", "plan", root=tmp_path, configured_agents={"AIDER"})
    assert found.path == SHIPPED_FOLDER / "BASE-plan.md"
    put(tmp_path, "AIDER-plan.md", "its own")
    assert (
        find_template("AIDER", "plan", root=tmp_path, configured_agents={"AIDER"}).text == "its own"
    )


@pytest.mark.demand("T1.b")
def test_a_template_of_the_agents_own_is_no_fallback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "phasegate"):
        load_system_template("CLAUDE", "implement", root=tmp_path)
    assert caplog.records == []


@pytest.mark.demand("T1.a", "T6.a")
def test_without_a_root_the_repository_around_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "CLAUDE-plan.md", "found from below")
    (tmp_path / ".git").mkdir()
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    assert find_project_root() == tmp_path
    assert load_system_template("CLAUDE", "plan") == "found from below"


@pytest.mark.demand("T1.e")
def test_an_agents_prefix_comes_from_its_harness() -> None:
    known = (
        "claude_code",
        "codex",
        "gemini",
        "cursor",
        "opencode",
        "qwen",
        "copilot",
        "acp",
        "command",
        "scripted",
    )
    assert tuple(HARNESSES) == known
    prefixes = [
        "CLAUDE",
        "CODEX",
        "GEMINI",
        "CURSOR",
        "OPENCODE",
        "QWEN",
        "COPILOT",
        "ACP",
        "COMMAND",
        "SCRIPTED",
    ]
    assert [resolve_template_prefix(harness) for harness in known] == prefixes
    assert resolve_template_prefix("claude") == resolve_template_prefix("CLAUDE") == "CLAUDE"


@pytest.mark.demand("T1.a")
def test_a_name_and_its_file_name_belong_to_each_other() -> None:
    name = TemplateName("MY_AGENT2", AgentPhase.REVIEW)
    assert name.file_name == "MY_AGENT2-review.md"
    assert parse_file_name(name.file_name) == name
    for other in (
        "claude-plan.md",
        "CLAUDE-PLAN.md",
        "CLAUDE-plan.txt",
        "plan.md",
        "CLAUDE-other.md",
        "README.md",
    ):
        assert parse_file_name(other) is None


@pytest.mark.demand("T2.a", "T4.e")
def test_the_shipped_templates_are_complete_and_pass_the_linter() -> None:
    shipped = list_shipped_templates()
    names = {template.name.file_name for template in shipped}
    assert {f"BASE-{phase}.md" for phase in AgentPhase} <= names
    assert {
        "CODEX-challenge.md",
        "CODEX-review.md",
        "CLAUDE-implement.md",
        "GEMINI-plan.md",
    } <= names
    assert {file.name for file in SHIPPED_FOLDER.iterdir()} == names
    for template in shipped:
        assert lint_template(template.name.phase, template.text) == [], template.path.name


DIRECTIVES = {
    "plan": ("proposal.md", "specs/", "tasks.md", "Mermaid", "JSON Schema", "No code in planning"),
    "challenge": ("consisten", "gap", "tasks.md", "requirement"),
    "implement": ("IMPLEMENTATION.md", "test", "task", "Task-driven"),
    "review": ("test", "ecurity", "quality"),
    "archive": ("CHANGELOG.md", "spec", "leftover|tidy|clean"),
}


@pytest.mark.demand("T2.b", "T2.c", "T2.d", "T2.e", "T2.f")
@pytest.mark.parametrize(
    "template", list_shipped_templates(), ids=lambda template: template.name.file_name
)
def test_a_shipped_template_has_its_sections_directives_and_answers(template) -> None:  # type: ignore[no-untyped-def]
    phase, text = template.name.phase, template.text
    for section in (
        *REQUIRED_SECTIONS,
        "Inputs",
        "Outputs",
        "How to Be Sure",
        "How to Answer",
    ):
        assert f"\n## {section}\n" in text or (
            section == "Outputs" and phase in ("challenge", "review")
        ), section
    for directive in DIRECTIVES[phase]:
        assert any(word in text for word in directive.split("|")), directive
    for variable in MANDATORY_VARIABLES[phase]:
        assert f"{{{{{variable}}}}}" in text
    assert {f"<review>{verdict}</review>" for verdict in ALLOWED_VERDICTS[phase]} <= set(
        text.split("\n")
    )


@pytest.mark.demand("T3.b", "T3.e")
def test_filling_names_what_is_missing_and_what_is_unknown() -> None:
    template = "{{PROJECT_CONTEXT}} {{TASKS}} {{NAMES}} {{ARTIFACTS}} {{MINE}} {{ TASKS }} {{tasks}} {{TASKS}}"
    filled = fill_template(template, {"PROJECT_CONTEXT": "a", "MINE": "b"}, "<no {name}>")
    assert filled.text == "a <no TASKS> {{NAMES}} <no ARTIFACTS> b {{ TASKS }} {{tasks}} <no TASKS>"
    assert filled.missing == ("TASKS", "ARTIFACTS")
    assert filled.unknown == ("NAMES",)


@pytest.mark.demand("T3.b")
def test_all_five_variables_are_filled() -> None:
    template = " ".join(f"{{{{{name}}}}}" for name in TEMPLATE_VARIABLES)
    assert (
        inject_variables(template, {name: name.lower() for name in TEMPLATE_VARIABLES})
        == " ".join(TEMPLATE_VARIABLES).lower()
    )


@pytest.mark.demand("T3.e")
def test_an_unknown_placeholder_stays_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "phasegate"):
        assert inject_variables("{{NAMES}}", {}) == "{{NAMES}}"
    assert "NAMES" in caplog.text


@pytest.mark.demand("T3.c")
def test_filling_grows_no_faster_than_the_text() -> None:
    assert_grows_no_faster_than_its_input(
        lambda text: fill_template(text, {"TASKS": "x" * 50}, "-"),
        lambda size: "{{TASKS}} some words {{NAMES}} {{" * size,
        5_000,
        40_000,
    )


@pytest.mark.demand("T4.a", "T4.b")
@pytest.mark.parametrize(
    "template", list_shipped_templates(), ids=lambda template: template.name.file_name
)
def test_metadata_is_derived_and_valid_against_the_published_schema(template) -> None:  # type: ignore[no-untyped-def]
    about = build_metadata(template.name, template.text)
    plain = msgspec.to_builtins(about)
    assert jsonschema_rs.is_valid(SYSTEM_TEMPLATE_METADATA, plain)
    assert not jsonschema_rs.is_valid(SYSTEM_TEMPLATE_METADATA, plain | {"phase": "PLAN"})
    assert set(about.variables) >= set(MANDATORY_VARIABLES[template.name.phase])
    assert len(set(about.variables)) == len(about.variables)


@pytest.mark.demand("T4.b")
def test_for_other_agents_only_the_list_of_agents_is_longer() -> None:
    plain = msgspec.to_builtins(build_metadata(TemplateName("CURSOR", AgentPhase.PLAN), GOOD_PLAN))
    assert not jsonschema_rs.is_valid(SYSTEM_TEMPLATE_METADATA, plain)
    longer = {**SYSTEM_TEMPLATE_METADATA["properties"], "agent": {"type": "string"}}
    assert jsonschema_rs.is_valid(SYSTEM_TEMPLATE_METADATA | {"properties": longer}, plain)


@pytest.mark.demand("T4.c", "T4.d")
def test_a_good_template_has_no_findings() -> None:
    assert lint_template(AgentPhase.PLAN, GOOD_PLAN) == []
    assert lint_template(AgentPhase.IMPLEMENT, GOOD_IMPLEMENT) == []
    assert (
        lint_template(
            AgentPhase.PLAN, GOOD_PLAN.replace("## Core", "#### Core").replace("\n", "\r\n")
        )
        == []
    )


@pytest.mark.demand("T4.c", "T4.d")
@pytest.mark.parametrize(
    ("phase", "lost", "code"),
    [
        ("plan", "## Identity & Role", "missing-section"),
        ("plan", "## Core Principles", "missing-section"),
        ("plan", "## Workflow Context", "missing-section"),
        ("plan", "{{PROJECT_CONTEXT}}", "missing-placeholder"),
        ("plan", "{{PROJECT_STRUCTURE}}", "missing-placeholder"),
        ("plan", "{{ARTIFACTS}}", "missing-placeholder"),
        ("plan", "{{SKELETON}}", "missing-placeholder"),
        ("implement", "{{TASKS}}", "missing-placeholder"),
        ("plan", "<review>PASS</review>", "missing-marker"),
        ("plan", "<review>NEEDS_REVISION</review>", "missing-marker"),
        ("implement", '<task_status id="X.Y">COMPLETED</task_status>', "missing-marker"),
        ("implement", '<task_status id="X.Y">FAILED</task_status>', "missing-marker"),
        ("plan", "<thought>", "no-thought"),
    ],
)
def test_whatever_a_template_lacks_is_found(phase: str, lost: str, code: str) -> None:
    text = GOOD_PLAN if phase == "plan" else GOOD_IMPLEMENT
    assert codes(phase, text.replace(lost, "")) == [code]


@pytest.mark.demand("T4.c", "T4.d", "T2.f")
@pytest.mark.parametrize(
    ("phase", "added", "code"),
    [
        ("plan", "REJECTED ends it", "foreign-verdict"),
        ("plan", "<review>MAJOR_ISSUES</review>", "foreign-verdict"),
        ("plan", "{{NAMES}}", "unknown-placeholder"),
        ("plan", "{{ TASKS }}", "malformed-placeholder"),
        ("plan", "{{tasks}}", "malformed-placeholder"),
        ("implement", "<review>", "foreign-verdict"),
        ("implement", "the tests PASS", "foreign-verdict"),
    ],
)
def test_whatever_does_not_belong_into_a_template_is_found_with_its_line(
    phase: str, added: str, code: str
) -> None:
    text = GOOD_PLAN if phase == "plan" else GOOD_IMPLEMENT
    findings = lint_template(AgentPhase(phase), text + added + "\n")
    assert [(finding.line, finding.code) for finding in findings] == [(text.count("\n") + 1, code)]


@pytest.mark.demand("T4.c")
def test_a_heading_inside_a_code_fence_is_none() -> None:
    fenced = GOOD_PLAN.replace("## Core Principles", "```\n## Core Principles\n```")
    assert codes("plan", fenced) == ["missing-section"]
    tilde = GOOD_PLAN.replace("## Core Principles", "~~~\n```\n~~~\n## Core Principles")
    assert codes("plan", tilde) == []


@pytest.mark.demand("T4.d")
def test_a_word_that_only_contains_a_verdict_is_no_verdict() -> None:
    assert codes("implement", GOOD_IMPLEMENT + "PASSWORD, COMPASS, REJECTED_BY\n") == []
