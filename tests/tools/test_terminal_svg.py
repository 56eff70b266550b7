"""The animated terminal of the README: made from a real run, and it shows what the demo prints."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools.terminal_svg import PrintedLine, draw, record

PICTURE = Path(__file__).parents[2] / "docs/how-to/pictures/demo-hostile.svg"


def texts(svg: str) -> list[str]:
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def test_each_line_appears_when_it_was_printed() -> None:
    svg = draw(
        [PrintedLine(0.0, "$ phasegate demo"), PrintedLine(2.0, "  ok  <b> & more " + "x " * 60)]
    )
    ElementTree.fromstring(svg)
    first, *rest = texts(svg)
    assert first == "$ phasegate demo"
    assert rest[0].startswith("  ok  <b> & more")
    assert len(rest) == 2, "a long line is wrapped"
    assert "animation-delay:0.00s" in svg
    assert svg.count("animation-delay:9.00s") == 2


def test_a_command_that_fails_makes_no_picture() -> None:
    with pytest.raises(SystemExit, match="failed"):
        record(["phasegate", "nonsense"])
    assert record(["phasegate", "--version"])[1].text.startswith("phasegate ")


def test_the_picture_of_the_readme_shows_every_hostile_agent_stopped() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    shown = "\n".join(texts(svg))
    assert shown.startswith("$ phasegate demo --hostile")
    assert [number for number in range(1, 8) if f"WP0{number}:" not in shown] == []
    assert "  NO" not in shown
    assert len(svg) < 20_000
