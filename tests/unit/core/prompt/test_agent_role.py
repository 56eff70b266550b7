"""What an agent file says that its agent is."""

from __future__ import annotations

import re

import pytest

from phasegate.core.prompt.agent_file import read_agent_file
from phasegate.core.prompt.agent_role import (
    ANY_PHASE_ROLE,
    AgentKind,
    AgentRole,
    parse_declared_role,
)
from phasegate.errors import ConfigError
from phasegate.prompts.agent_files import resolve_role

PHASES = ("01-requirements", "06-implementation")
DECLARED = {
    "phases: [01-requirements, 06-implementation]": AgentRole(AgentKind.PHASE_AGENT, PHASES),
    "phases: ['01-requirements', \"06-implementation\"]  # two": AgentRole(
        AgentKind.PHASE_AGENT, PHASES
    ),
    "phases:\n  - 01-requirements\n  # why\n  - 06-implementation\nmodel: x\n": AgentRole(
        AgentKind.PHASE_AGENT, PHASES
    ),
    "tools:\n  - Bash\nphases:\n- 01-requirements\n- 06-implementation": AgentRole(
        AgentKind.PHASE_AGENT, PHASES
    ),
    "role: orchestrator": AgentRole(AgentKind.ORCHESTRATOR),
    "role: sub-orchestrator\nphases: [02-tracing]": AgentRole(
        AgentKind.SUB_ORCHESTRATOR, ("02-tracing",)
    ),
    "role: sub-orchestrator": AgentRole(AgentKind.SUB_ORCHESTRATOR),
    "role: sub-orchestrator\nname: discover-orchestrator": AgentRole(
        AgentKind.SUB_ORCHESTRATOR, outside_workflows=True
    ),
    "role: sub-agent\nparent: p\ntask: 'Risk assessment'": AgentRole(
        AgentKind.SUB_AGENT, (), "p", "Risk assessment"
    ),
    "role: Senior engineer\nphases: [02-tracing]": AgentRole(
        AgentKind.PHASE_AGENT, ("02-tracing",)
    ),
    "description: phases: [01-x]": None,
    "  role: orchestrator": None,
    "metadata:\n  - 01-requirements": None,
    "": None,
}


@pytest.mark.demand("N10.m")
@pytest.mark.parametrize("text", DECLARED)
def test_front_matter_declares_the_role(text: str) -> None:
    assert parse_declared_role(text.split("\n"), "mine") == DECLARED[text]


REFUSED = {
    "role: subagent": "did you mean `role: sub-agent`",
    "role: Orchestrator": "did you mean `role: orchestrator`",
    "role: sub-agent\ntask: t": "set `parent`",
    "role: sub-agent\nparent: p": "set `task`",
    "role: sub-agent\nparent: p\ntask: caf\u00e9": "printable ASCII",
    "phases: 06-implementation": r"write it like `phases: \[06-implementation\]`",
    "phases: []": "write it like",
    "phases: [implementation]": "write it like",
    "phases: [06-a, 06-a]": "write it like",
    "phases:\nmodel: x": "write it like",
    "role: orchestrator\nrole: sub-agent": "keep one",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_in_the_front_matter_is_an_error_that_says_what_to_write(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_declared_role(text.split("\n"), "mine")
    assert re.search(REFUSED[text], caught.value.hint)


@pytest.mark.demand("N10.m")
def test_a_file_that_declares_nothing_is_known_by_its_name_then_by_its_headings() -> None:
    plain = read_agent_file("# ROLE\n\ntext\n")
    assert resolve_role(plain, "03-system-designer") == AgentRole(
        AgentKind.PHASE_AGENT, ("04-design",)
    )
    assert resolve_role(plain, "risk-assessor").kind is AgentKind.SUB_AGENT
    assert resolve_role(plain, "my-own") == ANY_PHASE_ROLE
    leader = read_agent_file("# CONSTITUTIONAL GOVERNANCE\n\n# PROGRESS TRACKING (TASK LIST)\n")
    assert resolve_role(leader, "my-own").kind is AgentKind.ORCHESTRATOR


def test_what_a_file_declares_wins_over_its_name() -> None:
    file = read_agent_file("---\nphases: [02-tracing]\n---\n")
    assert resolve_role(file, "risk-assessor") == AgentRole(AgentKind.PHASE_AGENT, ("02-tracing",))


@pytest.mark.parametrize("mark", [">", "|", ">-"])
def test_words_on_lines_of_their_own_are_refused(mark: str) -> None:
    lines = ["role: sub-agent", "parent: p", f"task: {mark}", "  Risk assessment"]
    with pytest.raises(ConfigError, match="not on one line"):
        parse_declared_role(lines, "mine")
