"""The shipped agent files: all there, in order, and no two alike."""

from __future__ import annotations

import re

import pytest

from phasegate.core.prompt.agent_file import extract_front_matter, read_agent_file
from phasegate.core.prompt.agent_role import AgentKind
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.prompts.agent_files import ShippedAgentFile, check_agent_file, load_shipped_files
from support.agent_file_shapes import CLOSING_LINES, SUB_AGENTS

FILES = {file.name: file for file in load_shipped_files()}
each_file = pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())


def authors_text(file: ShippedAgentFile) -> str:
    return "".join(read_agent_file(file.text).lines)


def headings(file: ShippedAgentFile) -> list[str]:
    return re.findall(r"^# (.+)$", file.text, re.MULTILINE)


@pytest.mark.demand("N10.a")
def test_all_agents_are_shipped_under_their_names() -> None:
    subs = {name for names in SUB_AGENTS.values() for name in names}
    assert set(FILES) == {"00-sdlc-orchestrator", *CLOSING_LINES, *SUB_AGENTS, *subs}
    assert len(FILES) == 36


@pytest.mark.demand("N10.a")
def test_every_phase_of_every_workflow_has_one_agent() -> None:
    served = [key for file in FILES.values() for key in file.role.phases]
    assert sorted(served) == sorted({key for phases in WORKFLOWS.values() for key in phases})


@pytest.mark.demand("N10.a")
def test_each_sub_agent_names_its_orchestrator() -> None:
    for parent, names in SUB_AGENTS.items():
        assert {name for name, file in FILES.items() if file.role.parent == parent} == set(names)
        assert FILES[parent].role.kind is AgentKind.SUB_ORCHESTRATOR


@pytest.mark.demand("N10.a")
@each_file
def test_the_front_matter_says_who_it_is_and_when_to_use_it(file: ShippedAgentFile) -> None:
    front = extract_front_matter(read_agent_file(file.text))
    assert f"name: {file.name}" in front
    assert any(re.match(r"description: Use .{40,}\.$", line) for line in front)


@pytest.mark.demand("N10.b", "N10.c", "N10.d")
@each_file
def test_the_section_was_put_in_by_the_tool(file: ShippedAgentFile) -> None:
    assert check_agent_file(file.text, file.name).findings == []
    due = (
        "PROMPT EMISSION PROTOCOL"
        if file.role.kind is AgentKind.ORCHESTRATOR
        else "SUGGESTED PROMPTS"
    )
    own = [
        title
        for title in headings(file)
        if title in ("PROMPT EMISSION PROTOCOL", "SUGGESTED PROMPTS")
    ]
    assert own == [due]


@pytest.mark.demand("N10.a", "N10.b")
@pytest.mark.parametrize("name", CLOSING_LINES)
def test_closing_lines_begin_as_specified_and_follow_the_section(name: str) -> None:
    text, beginning = FILES[name].text, CLOSING_LINES[name]
    assert text.index("\n# SELF-VALIDATION\n") < text.index("\n# SUGGESTED PROMPTS\n")
    last = text.rstrip("\n").rpartition("\n\n")[2]
    assert last.startswith(beginning) if beginning else last.endswith("```")


@pytest.mark.demand("N10.f")
def test_the_orchestrators_protocol_stands_between_governance_and_progress() -> None:
    titles = headings(FILES["00-sdlc-orchestrator"])
    at = titles.index("CONSTITUTIONAL GOVERNANCE")
    assert titles[at : at + 3] == [
        "CONSTITUTIONAL GOVERNANCE",
        "PROMPT EMISSION PROTOCOL",
        "PROGRESS TRACKING (TASK LIST)",
    ]


@pytest.mark.demand("N10.c", "N10.d")
def test_most_sub_agents_validate_themselves_and_all_end_with_their_status() -> None:
    subs = [file for file in FILES.values() if file.role.kind is AgentKind.SUB_AGENT]
    assert all(file.text.endswith(".\n---\n```\n") for file in subs)
    validating = [file for file in subs if "SELF-VALIDATION" in headings(file)]
    assert len(subs) / 2 < len(validating) < len(subs)


@pytest.mark.demand("N10.a")
@each_file
def test_an_agent_knows_its_inputs_its_method_and_its_result(file: ShippedAgentFile) -> None:
    words = authors_text(file).split()
    assert len(words) > 600
    assert len(headings(file)) >= 6
    assert re.search(
        r"^# (READ FIRST|WHAT YOU READ FIRST|EVIDENCE|WHAT YOU ARE GIVEN)", file.text, re.MULTILINE
    )
    assert re.search(r"^# WHAT NEVER TO DO$", file.text, re.MULTILINE)


def test_no_two_files_share_a_run_of_words() -> None:
    """A paragraph with one word changed is still a copy: no run of 15 words is in two files."""
    seen: dict[str, str] = {}
    for name, file in FILES.items():
        words = re.findall(r"[a-z']+", authors_text(file).lower())
        for run in {" ".join(words[at : at + 15]) for at in range(len(words) - 14)}:
            assert seen.setdefault(run, name) == name, run


@each_file
def test_a_shipped_file_is_plain_ascii_with_unix_lines(file: ShippedAgentFile) -> None:
    assert file.text.isascii()
    assert "\r" not in file.text
    assert file.text.endswith("\n")
