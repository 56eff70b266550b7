"""Which context documents an agent is given, by their `audience`."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.text.yaml_nodes import FieldReader, MalformedDocument, YamlMapping

AGENTS_AUDIENCE = "agents"


class DocumentSelection(NamedTuple):
    """Whether a document is given to agents, and why: the reason is shown and recorded."""

    is_given: bool
    reason: str


def select_document(
    front_matter: YamlMapping | MalformedDocument | None, listed_by_name: bool
) -> DocumentSelection:
    """Decide about one document by its front matter.

    What cannot be read is not given, and says so.
    """
    if isinstance(front_matter, MalformedDocument):
        return DocumentSelection(
            False,
            f"its front matter {front_matter.finding.message} (line {front_matter.finding.line})",
        )

    if front_matter is None:
        return DocumentSelection(
            listed_by_name, "listed by name" if listed_by_name else "it has no front matter"
        )

    fields = FieldReader(front_matter)
    audience = [name.strip().lower() for name in fields.read_text_or_texts("audience")]
    if fields.findings:
        return DocumentSelection(
            False, f"its {fields.findings[0].message} (line {fields.findings[0].line})"
        )

    if AGENTS_AUDIENCE in audience:
        return DocumentSelection(True, f"its audience is {', '.join(audience)}")

    return DocumentSelection(
        False,
        f"its audience is {', '.join(audience) or 'not stated'}; add `audience: [{AGENTS_AUDIENCE}]`",
    )
