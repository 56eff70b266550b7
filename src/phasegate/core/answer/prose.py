"""Remove from an answer what only steers the workflow, before it is stored or quoted.

Next-steps blocks and markers are instructions to Phasegate. In a document or in the prompt of
another agent they would look like a verdict.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(
    r"^-{3,}[ \t]*\n\s{0,20}(?:SUGGESTED NEXT STEPS:[^\n]*\n(?:[ \t]*(?:\[[0-9]\][^\n]*)?\n){0,8}"
    r"|STATUS:[^\n]*\n)-{3,}[ \t]*(?:\n|\Z)",
    re.M,
)
_MARKER = r"<(review|task_status)\b[^>\n]{0,200}>([^<\n]{0,200})</\1>"
_MARKER_LINE = re.compile(rf"^[ \t]*{_MARKER}[ \t]*(?:\n|\Z)", re.M)
_INLINE_MARKER = re.compile(_MARKER)
_MINOR = re.compile(r"^[ \t]*[0-9]+[.)] \**\[minor\]\**[ \t]*(.+(?:\n[ \t]+\S.*)*)", re.M | re.I)


def cut_markers(text: str) -> str:
    """Return the text without blocks and marker lines; a marker within a line leaves its value."""
    text = _MARKER_LINE.sub("", _BLOCK.sub("", text))
    return _INLINE_MARKER.sub(lambda match: match[2].strip(), text).strip()


def cut_result(text: str) -> str:
    """Return the text of an implementer's answer without markers and its JSON result."""
    text = f"\n{cut_markers(text)}"
    start = text.rfind("\n{", 0, max(text.rfind('"success"'), 0))
    if start >= 0:
        text = text[:start].rstrip().removesuffix("```json").removesuffix("```")
    return text.strip()


def find_minor_findings(text: str) -> tuple[str, ...]:
    """Return the findings that a reviewer calls minor, each on one line."""
    return tuple(" ".join(match[1].split()) for match in _MINOR.finditer(text))
