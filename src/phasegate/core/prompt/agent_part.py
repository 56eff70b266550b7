"""Select the part of an agent file that a role needs in a driven run."""

from __future__ import annotations

import re

from phasegate.core.prompt.agent_file import Outline, split_lines
from phasegate.core.prompt.role_needs import AgentFileParts

_PHASE_TITLE = re.compile(r"PHASE ([0-9]{2}) - ")
_UPGRADE_TITLES = {"PLAN: METHOD": "16-upgrade-plan", "EXECUTE: METHOD": "16-upgrade-execute"}


def select_agent_part(text: str, role: str, phase: str, parts: AgentFileParts) -> str:
    """Return the sections for a role, `writer` or `critic`; empty if the file has none.

    The title and introduction are left out: the template says who the agent is.
    """
    lines = split_lines(text)
    outline = Outline(lines)
    sections = []

    for start, title in [*outline.titles.items()][1:]:
        if role == "critic":
            is_wanted = title.startswith(parts.critic)
        else:
            is_wanted = _is_for_writer(title, phase, parts)

        if is_wanted:
            body = lines[start : outline.find_section_end(start)]
            sections.append("".join(body).replace("\r\n", "\n").strip("\n"))

    return "\n\n".join(sections) + "\n" if sections else ""


def _is_for_writer(title: str, phase: str, parts: AgentFileParts) -> bool:
    if title in parts.left_out or title.startswith(parts.critic):
        return False

    # A file for several phases has one method for each
    number = _PHASE_TITLE.match(title)
    if number:
        return phase.startswith(f"{number[1]}-")

    return _UPGRADE_TITLES.get(title, phase) == phase
