"""Who serves which role (P5): the one that was named, else one that is there; a critic is not the writer."""

from __future__ import annotations

import pytest

from phasegate.core.agents.roles import choose_agent_for_role
from phasegate.core.workflow.phase_transitions import Refusal


@pytest.mark.demand("W7.b")
def test_a_critic_differs_from_the_writer_where_two_are_there() -> None:
    assert choose_agent_for_role("plan", "01-requirements", {}, ("claude", "codex")) == "claude"
    assert choose_agent_for_role("challenge", "01-requirements", {}, ("claude", "codex")) == "codex"
    assert choose_agent_for_role("review", "06-implementation", {}, ("claude", "codex")) == "codex"
    assert (
        choose_agent_for_role(
            "challenge", "01-requirements", {"plan": "codex"}, ("claude", "codex")
        )
        == "claude"
    )


def test_one_agent_alone_serves_every_role() -> None:
    for role in ("plan", "challenge", "implement", "review", "archive"):
        assert choose_agent_for_role(role, "01-requirements", {}, ("claude",)) == "claude"


def test_without_any_agent_it_is_refused_with_a_hint() -> None:
    refused = choose_agent_for_role("plan", "01-requirements", {}, ())
    assert isinstance(refused, Refusal)
    assert refused.reason == "no agent can be started"
    assert "[agents.NAME]" in refused.hint


@pytest.mark.demand("W7.a")
def test_a_phases_own_entry_names_who_does_its_work_and_its_critic_stays_the_one_of_the_role() -> (
    None
):
    roles = {"03-architecture": "gemini", "challenge": "codex"}
    agents = ("claude", "codex", "gemini")
    assert choose_agent_for_role("plan", "03-architecture", roles, agents) == "gemini"
    assert choose_agent_for_role("challenge", "03-architecture", roles, agents) == "codex"
    assert choose_agent_for_role("plan", "01-requirements", roles, agents) == "claude"


def test_a_critic_differs_from_the_writer_that_a_phases_entry_names() -> None:
    assert (
        choose_agent_for_role(
            "challenge", "03-architecture", {"03-architecture": "claude"}, ("claude", "codex")
        )
        == "codex"
    )
    assert (
        choose_agent_for_role(
            "challenge", "03-architecture", {"03-architecture": "codex"}, ("claude", "codex")
        )
        == "claude"
    )


def test_a_reviewer_differs_from_the_implementer_that_the_phases_entry_names() -> None:
    roles = {"06-implementation": "codex"}
    assert (
        choose_agent_for_role("implement", "06-implementation", roles, ("claude", "codex"))
        == "codex"
    )
    assert (
        choose_agent_for_role("review", "06-implementation", roles, ("claude", "codex")) == "claude"
    )


def test_the_one_that_a_person_wants_goes_before_all() -> None:
    assert (
        choose_agent_for_role(
            "challenge", "01-requirements", {"challenge": "codex"}, ("claude", "codex"), "claude"
        )
        == "claude"
    )


def test_a_named_agent_that_cannot_be_started_is_refused_and_not_replaced() -> None:
    refused = choose_agent_for_role("plan", "01-requirements", {"plan": "gemini"}, ("claude",))
    assert isinstance(refused, Refusal)
    assert refused.reason == "the agent gemini cannot be started"
    assert refused.hint.startswith("available: claude")
