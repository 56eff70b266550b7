"""Which context documents an agent is given (D16)."""

from __future__ import annotations

import pytest

from phasegate.core.prompt.audience import DocumentSelection, select_document
from phasegate.core.text.yaml_nodes import MalformedDocument
from phasegate.prompts.front_matter import read_document


def _select(text: str, listed_by_name: bool = True) -> DocumentSelection:
    try:
        front = read_document(text).front_matter
    except MalformedDocument as error:
        return select_document(error, listed_by_name)
    return select_document(front, listed_by_name)


@pytest.mark.demand("D16.a")
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    "audience", ["[agents, developers]", "[developers, Agents]", "agents", "\n- agents\n- pms"]
)
def test_a_document_for_agents_is_given(audience: str, listed: bool) -> None:
    assert _select(f"---\ntitle: x\naudience: {audience}\n---\nbody", listed).is_given


@pytest.mark.demand("D16.a")
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    "front",
    ["audience: [developers]", "audience: []", "title: x", "audience: subagents", "a: agents"],
)
def test_a_document_that_is_not_for_agents_is_not_given(front: str, listed: bool) -> None:
    selection = _select(f"---\n{front}\n---\nbody", listed)
    assert not selection.is_given
    assert "audience" in selection.reason


@pytest.mark.demand("D16.b")
def test_a_document_that_is_listed_by_name_and_has_no_front_matter_is_given() -> None:
    assert _select("# Architecture\n").is_given
    assert not _select("# Architecture\n", listed_by_name=False).is_given


@pytest.mark.demand("D16.a")
@pytest.mark.parametrize(
    "text",
    [
        "---\naudience: [agents\n---\n",
        "---\naudience: [agents]\n",
        "---\naudience: &a [agents]\n---\n",
        "---\naudience: [developers]\naudience: [agents]\n---\n",
        "---\naudience: {agents: true}\n---\n",
        "---\naudience: [[agents]]\n---\n",
        "---\nagents\n---\n",
    ],
)
def test_a_document_whose_front_matter_cannot_be_read_is_not_given_and_says_so(text: str) -> None:
    selection = _select(text)
    assert not selection.is_given
    assert "line" in selection.reason
