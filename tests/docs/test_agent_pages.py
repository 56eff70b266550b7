"""The page of each agent: its examples are valid, and it claims no version but the one that is tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phasegate.config.load import load_config
from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES

HOW_TO = Path(__file__).parents[2] / "docs/how-to"
PAGES = {
    "claude_code": "claude-code.md",
    "codex": "codex.md",
    "gemini": "gemini-cli.md",
    "cursor": "cursor.md",
    "opencode": "opencode.md",
    "qwen": "qwen-code.md",
    "copilot": "copilot-cli.md",
}


def test_every_known_program_has_a_page() -> None:
    assert PAGES.keys() == INSTALLABLE_HARNESSES.keys()


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_says_how_to_install_and_sign_in_and_which_version_is_verified(kind: str) -> None:
    page, known = (HOW_TO / PAGES[kind]).read_text(encoding="utf-8"), INSTALLABLE_HARNESSES[kind]
    for heading in ("Install", "Sign in", "Configure", "How it runs", "Limits", "What is verified"):
        assert f"\n## {heading}\n" in page
    assert known.install_instruction in page if known.tested_version else "**Unverified.**" in page
    for name in (*known.key_variables, *(f"~/{file}" for file in known.sign_in_files)):
        assert f"`{name}`" in page, name
    versions = re.findall(r"\nVersion ([0-9.]+[0-9]),", page)
    assert versions == ([known.tested_version] if known.tested_version else [])


@pytest.mark.parametrize("kind", PAGES)
def test_the_example_of_a_page_is_a_valid_configuration(kind: str, tmp_path: Path) -> None:
    page = (HOW_TO / PAGES[kind]).read_text(encoding="utf-8")
    example = next(
        text
        for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
        if "phasegate.toml" in text
    )
    others = '[agents.codex]\nharness = "codex"\n' if "[agents.codex]" not in example else ""
    (tmp_path / "phasegate.toml").write_text(f"{example}{others}")
    agents = load_config(tmp_path, {"PHASEGATE_TRUST": "1"}).config.agents
    assert kind in {agent.harness for agent in agents.values()}
