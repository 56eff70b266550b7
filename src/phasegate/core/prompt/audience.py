"""Select the context documents for agents by their `audience`."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.text.yaml_nodes import FieldReader, MalformedDocument, YamlMapping

AGENTS_AUDIENCE = "agents"
FRONT_MATTER = f"---\naudience: [{AGENTS_AUDIENCE}, developers]\n---\n"


class DocumentSelection(NamedTuple):
    """Whether a document is passed to agents, and the reason, which is shown and recorded."""

    is_given: bool
    reason: str


def select_document(
    front_matter: YamlMapping | MalformedDocument | None, listed_by_name: bool
) -> DocumentSelection:
    """Decide whether agents get a context document, by the `audience` in its front matter.

    `listed_by_name`: a setting or the plan names the document, so it needs no front matter.
    """
    if isinstance(front_matter, MalformedDocument):
        return DocumentSelection(
            False,
            f"its front matter {front_matter.finding.message} (line {front_matter.finding.line})",
        )

    if front_matter is None and listed_by_name:
        return DocumentSelection(True, "listed by name")
    if front_matter is None:
        return DocumentSelection(False, "it has no front matter")

    fields = FieldReader(front_matter)
    audience = [name.strip().lower() for name in fields.read_text_or_texts("audience")]
    if fields.findings:
        return DocumentSelection(
            False, f"its {fields.findings[0].message} (line {fields.findings[0].line})"
        )

    if AGENTS_AUDIENCE in audience:
        return DocumentSelection(True, f"its audience is {', '.join(audience)}")

    stated = ", ".join(audience) or "not stated"
    return DocumentSelection(
        False, f"its audience is {stated}; add `audience: [{AGENTS_AUDIENCE}]`"
    )
