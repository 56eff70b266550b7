"""Measure the parts of a prompt, new or recorded."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.core.prompt.role_needs import CHARACTERS_PER_TOKEN, classify_item

# Parts that are about this feature; the others would be the same for another one
FEATURE_PARTS = ("documents", "package", "files", "diff", "evidence", "findings", "instructions")
_SKELETON_START = "Skeleton of `"
# Headings of a template at which a part of another kind starts
_SYSTEM_PARTS = (
    ("project", "\n## Project Context\n"),
    ("tree", "\n## Project Structure\n"),
    ("template", "\n## Artifacts\n"),
    ("skeletons", "\n" + _SKELETON_START),
)


class PartSize(NamedTuple):
    """The size of one part of a prompt, in tokens of four characters."""

    part: str
    name: str
    tokens: int


def measure_parts(prompt: UnifiedPrompt, agent_files: Collection[str]) -> list[PartSize]:
    """Return the parts in their order, and the markup; their sum is the size of the prompt."""
    texts = _split_system_prompt(prompt.system_prompt or "")
    for item in prompt.context:
        name = item.name or ""
        texts.append((classify_item(item.type, name, agent_files), name, item.content))

    task, start, skeletons = prompt.instructions.partition(_SKELETON_START)
    texts.append(("instructions", "", task))
    texts.append(("skeletons", "", start + skeletons))

    sizes = [
        PartSize(part, name, len(text) // CHARACTERS_PER_TOKEN)
        for part, name, text in texts
        if text
    ]
    total = len(prompt.to_xml()) // CHARACTERS_PER_TOKEN
    markup = total - sum(size.tokens for size in sizes)
    return [*sizes, PartSize("markup", "", markup)]


def _split_system_prompt(text: str) -> list[tuple[str, str, str]]:
    """Split a system prompt at its headings into named parts."""
    found: list[tuple[str, str, str]] = []
    rest = text
    part = "template"

    for next_part, heading in _SYSTEM_PARTS:
        before, separator, after = rest.partition(heading)
        if separator:
            found.append((part, "", before))
            part, rest = next_part, separator + after

    return [*found, (part, "", rest)]


def measure_feature_share(sizes: Collection[PartSize]) -> float:
    """Return which share of a prompt is about its feature, without the markup."""
    counted = sum(size.tokens for size in sizes if size.part != "markup")
    about = sum(size.tokens for size in sizes if size.part in FEATURE_PARTS)
    return about / counted if counted else 0.0
