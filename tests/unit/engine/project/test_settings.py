"""The template prefix of an agent."""

from __future__ import annotations

import pytest

from phasegate.config.settings import AgentSettings, Config, HarnessKind
from phasegate.engine.project.settings import find_template_prefix

CODEX = HarnessKind("codex")
CONFIG = Config(
    agents={"mine": AgentSettings(CODEX, template="OWN"), "plain": AgentSettings(CODEX)}
)


@pytest.mark.parametrize(
    ("agent", "prefix", "configured"),
    [
        ("mine", "OWN", ("OWN",)),
        ("plain", "CODEX", ("CODEX",)),
        ("codex", "CODEX", ()),
        ("stranger", "STRANGER", ()),
    ],
)
def test_a_configured_agent_has_its_template_and_any_other_name_is_a_prefix(
    agent: str, prefix: str, configured: tuple[str, ...]
) -> None:
    assert find_template_prefix(CONFIG, agent) == (prefix, configured)
