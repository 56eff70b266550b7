"""Split a Gherkin file into its scenarios, each with its tags and the steps of its background."""

from __future__ import annotations

import re
from collections.abc import Iterator

GHERKIN = ".feature"
_SECTION = re.compile(
    r"\s*(?P<kind>Feature|Rule|Background|Scenario Outline|Scenario Template|Scenario|Example):"
    r"\s*(?P<name>.*?)\s*"
)
_TAGS = re.compile(r"\s*@\S")
_DOC_STRING = re.compile(r"\s*(\"\"\"|```)")


def find_feature_title(text: str) -> str:
    """Return the title of the feature of a file; empty if it has none."""
    sections = filter(None, map(_SECTION.fullmatch, text.splitlines()))
    return next((one["name"] for one in sections if one["kind"] == "Feature"), "")


def split_gherkin(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of each scenario.

    The source begins with what applies to it too: the tags of its feature and rule, and their
    backgrounds.
    """
    shared: dict[str, list[str]] = {}
    owner = kind = "Feature"
    name = fence = ""
    tags: list[str] = []
    body: list[str] = []

    for line in [*text.splitlines(), "Feature:"]:
        section = None if fence else _SECTION.fullmatch(line)
        mark = _DOC_STRING.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        if not fence and _TAGS.match(line):
            tags.append(line.strip())
            continue
        if section is None:
            body.append(line)
            continue

        if kind == "Background":
            shared[f"background of {owner}"] = body
        elif kind not in ("Feature", "Rule"):
            above = [line for lines in shared.values() for line in lines]
            yield name, "\n".join([*above, *body])

        kind, name = section["kind"], section["name"]
        if kind in ("Feature", "Rule"):
            owner = kind
            is_rule = kind == "Rule"
            shared = {key: one for key, one in shared.items() if is_rule and "Rule" not in key}
            shared[kind] = tags
        body = [*tags, line]
        tags = []
