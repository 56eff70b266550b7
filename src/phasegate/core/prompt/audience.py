"""Which context documents an agent is given, by their `audience`."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.text.yaml_nodes import Entries, Fields, Malformed

AGENTS = "agents"


class Selection(NamedTuple):
    """Whether a document is given to agents, and why: the reason is shown and recorded."""

    given: bool
    reason: str


def select(front: Entries | Malformed | None, listed_by_name: bool) -> Selection:
    """Decide about one document by its front matter. What cannot be read is not given, and says so."""
    if isinstance(front, Malformed):
        return Selection(False, f"its front matter {front.finding.message} (line {front.finding.line})")
    if front is None:
        return Selection(listed_by_name, "listed by name" if listed_by_name else "it has no front matter")
    fields = Fields(front)
    audience = [name.strip().lower() for name in fields.text_or_texts("audience")]
    if fields.findings:
        return Selection(False, f"its {fields.findings[0].message} (line {fields.findings[0].line})")
    if AGENTS in audience:
        return Selection(True, f"its audience is {', '.join(audience)}")
    return Selection(False, f"its audience is {', '.join(audience) or 'not stated'}; add `audience: [{AGENTS}]`")
