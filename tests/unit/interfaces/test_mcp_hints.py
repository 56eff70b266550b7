"""Hints of the command line, reworded for MCP clients."""

from __future__ import annotations

import pytest

from phasegate.interfaces.mcp.hints import reword_hint
from phasegate.interfaces.mcp.tools import TITLES, TOOLS


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("choose with --feature: 001-a, 002-b", "choose with the argument `feature`: 001-a, 002-b"),
        ("phasegate run --feature 001-a", "the tool `run`"),
        (
            'phasegate resolve "how", and phasegate run',
            "the tool `decide` with the order `resolve`, and the tool `run`",
        ),
        ("phasegate show WP01", "the tool `explain`"),
        ("phasegate trust", "ask the user to run `phasegate trust`"),
        ("commit them", "commit them"),
    ],
)
def test_a_hint_names_tools_and_arguments(hint: str, expected: str) -> None:
    assert reword_hint(hint) == expected


def test_every_tool_has_a_title() -> None:
    assert {tool.describe()["title"] for tool in TOOLS.values()} == {*TITLES.values()}
