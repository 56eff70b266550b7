"""Convert the specifications of OpenSpec and Spec Kit to current specifications.

Headings and lists of requirements get ids; all other text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from phasegate.core.specs.spec_file import (
    REQUIREMENT_ID,
    find_prose_lines,
    parse_spec,
    render_spec,
    split_lines,
)

_OPENSPEC_HEADING = re.compile(r"###\s+Requirement:\s*(.*?)\s*")
_SPECKIT_ITEM = re.compile(r"\s*[-*]\s+\*\*((?:FR|NFR)-(?:[A-Z0-9]+-)*([0-9]{1,6}))\*\*:?\s*(.*)")
# A row of a table of requirements: id, text, and the priority if there is one
_SPECKIT_ROW = re.compile(
    r"\s*\|\s*[*`]{0,2}((?:FR|NFR)-(?:[A-Z0-9]+-)*([0-9]{1,6}))[*`]{0,2}\s*\|(.+)\|\s*"
)
_SPECKIT_HEADING = re.compile(r"#{2,6}\s+((?:FR|NFR)-(?:[A-Z0-9]+-)*([0-9]{1,6}))[:.]?\s*(.*?)\s*")
_KNOWN_ID = re.compile(rf"({REQUIREMENT_ID}):?\s*(.*)")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_MAX_PARTS = 6
_MAX_PART_CHARS = 24


def make_id_prefix(capability: str) -> str:
    """Return the beginning of the ids of a capability: FR-CLI-ARCHIVE for cli-archive."""
    parts = re.findall(r"[A-Z0-9]+", capability.upper())[:_MAX_PARTS]
    return "-".join(("FR", *(part[:_MAX_PART_CHARS] for part in parts)))


def convert_openspec(text: str, capability: str) -> str:
    """Convert `openspec/specs/NAME/spec.md`; raise MalformedSpec.

    A requirement that has an id in its name keeps it.
    """
    lines = split_lines(text)
    prefix = make_id_prefix(capability)
    numbers = count(1)
    for index in sorted(find_prose_lines(text)):
        heading = _OPENSPEC_HEADING.fullmatch(lines[index])
        if heading is None:
            continue
        known = _KNOWN_ID.fullmatch(heading[1])
        if known:
            lines[index] = f"### {known[1]}: {known[2]}"
        else:
            lines[index] = f"### {prefix}-{next(numbers):03}: {heading[1]}"
    return _normalise(lines)


def convert_speckit(text: str, capability: str) -> str:
    """Convert `specs/NNN-NAME/spec.md` of Spec Kit; raise MalformedSpec.

    Its ids count from 1 in every feature, so they get the name of the feature: FR-001 of
    003-photo-album becomes FR-PHOTO-ALBUM-001.
    """
    lines = split_lines(text)
    prefix = make_id_prefix(capability)
    for index in sorted(find_prose_lines(text)):
        line = lines[index]
        if heading := _SPECKIT_HEADING.fullmatch(line):
            lines[index] = f"### {_qualify(prefix, heading)}: {heading[3]}".removesuffix(": ")
        elif found := _SPECKIT_ITEM.fullmatch(line):
            lines[index] = f"\n### {_qualify(prefix, found)}\n\n{found[3]}"
        elif found := _SPECKIT_ROW.fullmatch(line):
            cells = "\n\n".join(cell.strip() for cell in _CELL_BORDER.split(found[3]))
            lines[index] = f"\n### {_qualify(prefix, found)}\n\n{cells}"
    return _normalise(lines)


def _qualify(prefix: str, found: re.Match[str]) -> str:
    """Return the id of a requirement with the name of its feature; NFR- stays."""
    kind = found[1].partition("-")[0]
    return f"{kind}{prefix.removeprefix('FR')}-{found[2]}"


def _normalise(lines: Iterable[str]) -> str:
    return render_spec(parse_spec("\n".join(lines)))
